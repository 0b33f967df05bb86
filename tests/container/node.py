"""A node of Kubernetes on this machine: its programs, compiled from their source, in namespaces of their own.

Owns the processes and what they leave behind: control groups and settings of the kernel. It needs root, the
programs of `_NEEDED`, and Go with its module proxy. What was compiled is kept in build/kubernetes; the first
time takes ten minutes.
"""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.container.engine import docker
from tests.container.images import base_image
from tests.deadline import deadline
from tests.go_programs import SECONDS, downloaded
from tests.tidy.house import ROOT
from tests.waiting import DEADLINE_SECONDS, wait_for

KUBERNETES = "v1.34.4"
_MODULE = f"k8s.io/kubernetes@{KUBERNETES}"
_SUM = "h1:Yy6R4QB8C9kJPp25GFqEvX5XQwY5qzKeqD0Xx6oAcmk="
_DNS_MODULE = "github.com/coredns/coredns@v1.12.4"
_DNS_SUM = "h1:rIMnjPvB02drP18DTlJJb1vGkc8Tyl8fe7NFnnSv2lU="
_PROGRAMS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy")
_DNS = """
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/kubernetes"
)

func main() {
	dnsserver.Directives = []string{"kubernetes"}
	coremain.Run()
}
"""
_SCRIPT = ROOT / "tests" / "container" / "programs" / "kubernetes_node.sh"
_BUILT = ROOT / "build" / "kubernetes"
_NEEDED = ("containerd", "runc", "kubectl", "etcd", "conntrack", "iptables", "/usr/lib/cni/bridge")
_KERNEL = [
    Path("/proc/sys") / each for each in ("vm/overcommit_memory", "kernel/panic", "kernel/panic_on_oops")
]
"""What a kubelet sets for the whole machine."""


class Node:
    """What runs in `folder`; `init` is the first process of its namespaces."""

    def __init__(self, folder: Path, init: int) -> None:
        self.folder = folder
        self._inside = ["nsenter", "--target", str(init), "--net", "--mount", "--pid"]

    def run(
        self, *command: str, given: str | None = None, check: bool = True, cwd: Path | None = None
    ) -> str:
        """Run in its network. Both outputs; raises AssertionError with them if it fails."""
        at = [f"--wdns={cwd}"] if cwd else []
        done = subprocess.run(
            [*self._inside, *at, *command],
            input=given,
            env=os.environ | {"KUBECONFIG": str(self.folder / "kubeconfig")},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=DEADLINE_SECONDS,
            check=False,
        )
        assert not check or done.returncode == 0, f"{' '.join(command)}:\n{done.stdout[-8000:]}"
        return done.stdout

    def kubectl(self, *arguments: str, given: str | None = None, check: bool = True) -> str:
        return self.run("kubectl", *arguments, given=given, check=check)

    def load(self, *images: str) -> None:
        """Images of the engine."""
        file = self.folder / "images.tar"
        docker("save", "--output", str(file), *images)
        address = ("--address", str(self.folder / "containerd.sock"), "--namespace", "k8s.io")
        self.run("ctr", *address, "images", "import", str(file))
        file.unlink()

    def add_volumes(self, *names: str) -> None:
        """A disk for each of so many claims."""
        for name in names:
            folder = self.folder / "volumes" / name
            folder.mkdir()
            terms = [
                {
                    "matchExpressions": [
                        {"key": "kubernetes.io/hostname", "operator": "In", "values": ["node"]}
                    ]
                }
            ]
            volume = {
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": {"name": name},
                "spec": {
                    "capacity": {"storage": "20Gi"},
                    "accessModes": ["ReadWriteOncePod"],
                    "local": {"path": str(folder)},
                    "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
                },
            }
            self.kubectl("apply", "-f", "-", given=json.dumps(volume))


def _compiled() -> Path:
    """The folder of the programs."""
    _BUILT.mkdir(parents=True, exist_ok=True)
    modules = [(_MODULE, _SUM, [(f"k8s.io/kubernetes/cmd/{name}", name) for name in _PROGRAMS])]
    modules += [(_DNS_MODULE, _DNS_SUM, [(".", "coredns")])]
    for module, checksum, packages in modules:
        if all((_BUILT / name).exists() for _, name in packages):
            continue
        go, source = downloaded(_BUILT, module, checksum)
        work = _BUILT / "source"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        name, version = module.split("@")
        # Only the main module may replace others. These are folders of the source, and were released with it.
        replaced = re.findall(
            r"^\t(k8s\.io/\S+) => \./staging/", (source / "go.mod").read_text(), re.MULTILINE
        )
        lines = [f"replace {each} => {each} {version.replace('v1.', 'v0.')}" for each in replaced]
        (work / "go.mod").write_text("\n".join(["module node", f"require {name} {version}", *lines, ""]))
        imports = "".join(f'import _ "{package}"\n' for package, _ in packages)
        (work / "main.go").write_text(
            _DNS if name.endswith("coredns") else f"//go:build tools\n\npackage node\n\n{imports}"
        )
        environment = os.environ | {"CGO_ENABLED": "0", "GOFLAGS": "-mod=mod"}
        subprocess.run([go, "mod", "tidy", "-e"], cwd=work, env=environment, check=True, timeout=SECONDS)
        told = f"-s -w -X k8s.io/component-base/version.gitVersion={KUBERNETES}"
        for package, program in packages:
            build = [go, "build", "-ldflags", told, "-o", str(_BUILT / program), package]
            subprocess.run(build, cwd=work, env=environment, check=True, timeout=SECONDS)
    return _BUILT


@contextmanager
def node(folder: Path) -> Iterator[Node]:
    """A node that is ready."""
    missing = [each for each in _NEEDED if shutil.which(each) is None]
    assert not missing, (
        f"install {missing}: apt-get install docker.io etcd-server containernetworking-plugins conntrack"
    )
    assert os.geteuid() == 0, "a node of Kubernetes needs root"
    with deadline("the build of Kubernetes", SECONDS):
        programs = _compiled()
    pause = folder / "pause"
    pause.mkdir()
    (pause / "Dockerfile").write_text(f'FROM {base_image()}\nENTRYPOINT ["sleep", "infinity"]\n')
    docker("build", "--tag", "tidelog-test-pause", str(pause))
    kernel = [each.read_text() for each in _KERNEL]
    spaces = ["unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"]
    with subprocess.Popen([*spaces, "sh", str(_SCRIPT), str(folder), str(programs)]) as running:
        try:
            children = Path(f"/proc/{running.pid}/task/{running.pid}/children")
            wait_for(lambda: bool(children.read_text()), "the first process", DEADLINE_SECONDS)
            one = Node(folder, int(children.read_text()))
            ready = ("wait", "--for=condition=Ready", "node/node")
            wait_for(
                lambda: "met" in one.kubectl(*ready, check=False), "a node that is ready", DEADLINE_SECONDS
            )
            one.load("tidelog-test-pause")
            yield one
        finally:
            running.kill()
    for path, text in zip(_KERNEL, kernel, strict=True):
        path.write_text(text)
    groups = ["find", "/sys/fs/cgroup", "-depth", "-type", "d", "-path", "*/kubepods*", "-delete"]
    wait_for(
        lambda: subprocess.run(groups, check=False, capture_output=True).returncode == 0,
        "no control group",
        60,
    )
