#!/bin/sh
# Makes what the etcd of cluster.yml needs for TLS, in the current folder: an authority, and one certificate for all
# members. Run again, it renews the certificate and keeps the authority. usage: etcd-certificates.sh NAMESPACE [RELEASE]
set -eu
service="${2:-tidelog}-etcd.$1.svc"
umask 077
# Without keyUsage and authorityKeyIdentifier, clients on Python 3.13 and newer refuse the certificates.
[ -e ca.crt ] || openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 \
    -subj "/CN=Tidelog etcd authority" -addext keyUsage=critical,keyCertSign,cRLSign -keyout ca.key -out ca.crt
openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=tidelog-etcd" -keyout tls.key -out tls.csr
# Members are clients of each other too.
printf 'subjectAltName=DNS:%s,DNS:*.%s,DNS:localhost,IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\nauthorityKeyIdentifier=keyid' \
    "$service" "$service" > tls.ext
openssl x509 -req -in tls.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 365 -extfile tls.ext -out tls.crt
rm tls.csr tls.ext
