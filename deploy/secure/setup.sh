#!/bin/sh
# Makes what the broker of the profile `secure` needs, once: an authority, a certificate, the user admin.
set -eu
home=/var/lib/tidelog
[ -e "$home/certificates/broker.pem" ] && exit 0
umask 077
work="$home/certificates.new"
rm -rf "$work"
mkdir -p "$work"
cd "$work"
# Without keyUsage and authorityKeyIdentifier, clients on Python 3.13 and newer refuse the certificates.
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 \
    -subj "/CN=Tidelog authority" -addext keyUsage=critical,keyCertSign,cRLSign -keyout authority.key -out authority.pem
openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes \
    -subj "/CN=broker" -keyout broker.key -out broker.csr
printf 'subjectAltName=DNS:localhost,DNS:broker-secure,IP:127.0.0.1\nauthorityKeyIdentifier=keyid' > broker.ext
openssl x509 -req -in broker.csr -CA authority.pem -CAkey authority.key -CAcreateserial -days 365 \
    -extfile broker.ext -out broker.crt
cat broker.key broker.crt > broker.pem
tidelog storage add-user "$home/data" admin --password-file /run/secrets/admin-password
# Last, because its presence says that everything above was done.
mv "$work" "$home/certificates"
