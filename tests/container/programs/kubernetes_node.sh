# The programs of one node of Kubernetes, as the first process of its namespaces: node.sh FOLDER PROGRAMS. Nothing of it is
# reached from outside, so its passwords are known and the disk of its store need not be safe.
set -eu
cd "$1"
programs=$2 address=192.0.2.10
mkdir -p log cni volumes
mount --make-rprivate /
ip link set lo up
ip address add $address/32 dev lo
ip route add 10.96.0.0/16 dev lo
openssl genrsa -out account.key 2048 2> /dev/null
echo 'of-the-test,admin,admin,"system:masters"' > tokens.csv
touch resolv.conf
cat > kubeconfig << END
apiVersion: v1
kind: Config
clusters: [{name: node, cluster: {server: "https://$address:6443", insecure-skip-tls-verify: true}}]
users: [{name: admin, user: {token: of-the-test}}]
contexts: [{name: node, context: {cluster: node, user: admin}}]
current-context: node
END
# A machine may forbid the negative values with which containers are kept from the kernel's killer.
cat > containerd.toml << END
version = 2
root = "$1/containerd"
state = "/run/tidelog-test-containerd"
[grpc]
address = "$1/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "docker.io/library/tidelog-test-pause:latest"
disable_apparmor = true
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/usr/lib/cni"
conf_dir = "$1/cni"
END
cat > cni/node.conflist << END
{"cniVersion": "0.4.0", "name": "node", "plugins": [{
  "type": "bridge", "bridge": "pods", "isGateway": true, "hairpinMode": true,
  "ipam": {"type": "host-local", "dataDir": "$1/addresses", "subnet": "10.88.0.0/16", "routes": [{"dst": "0.0.0.0/0"}]}}]}
END
cat > kubelet.yml << END
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
cgroupDriver: cgroupfs
failCgroupV1: false
failSwapOn: false
clusterDNS: [$address]
clusterDomain: cluster.local
containerRuntimeEndpoint: unix://$1/containerd.sock
resolvConf: $1/resolv.conf
evictionHard: {memory.available: 50Mi}
enforceNodeAllocatable: []
localStorageCapacityIsolation: false
END
cat > Corefile << END
.:53 {
  kubernetes cluster.local in-addr.arpa { kubeconfig $1/kubeconfig
  }
}
END
run() { "$@" > "log/${1##*/}" 2>&1 & }
rm -rf /run/tidelog-test-containerd
run containerd --config containerd.toml
run etcd --data-dir store --unsafe-no-fsync
run "$programs/kube-apiserver" --etcd-servers=http://127.0.0.1:2379 --bind-address=$address --advertise-address=$address \
    --cert-dir="$1/certificates" --service-cluster-ip-range=10.96.0.0/16 --service-account-issuer=https://node \
    --service-account-key-file=account.key --service-account-signing-key-file=account.key --token-auth-file=tokens.csv \
    --authorization-mode=AlwaysAllow --endpoint-reconciler-type=none --kubelet-preferred-address-types=InternalIP
until kubectl --kubeconfig kubeconfig get --raw /readyz > /dev/null 2>&1; do sleep 0.2; done
run "$programs/kube-controller-manager" --kubeconfig=kubeconfig --service-account-private-key-file=account.key --leader-elect=false
run "$programs/kube-scheduler" --kubeconfig=kubeconfig --leader-elect=false
run "$programs/kubelet" --kubeconfig=kubeconfig --config=kubelet.yml --root-dir="$1/kubelet" --cert-dir="$1/certificates" \
    --hostname-override=node --node-ip=$address
run "$programs/kube-proxy" --kubeconfig=kubeconfig --hostname-override=node --cluster-cidr=10.88.0.0/16 \
    --conntrack-max-per-core=0 --conntrack-tcp-timeout-established=0 --conntrack-tcp-timeout-close-wait=0
run "$programs/coredns" -conf Corefile
# As the first process it must collect those that others leave behind.
while :; do wait; sleep 1; done
