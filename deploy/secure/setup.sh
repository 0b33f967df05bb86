#!/bin/sh
# Makes what the broker of the profile `secure` needs: an authority, a certificate, the user admin. Run again, it renews a
# certificate that ends within 30 days; the broker notices the new file. The authority's key stays outside the broker's volume.
set -eu
home=/var/lib/tidelog
authority=/etc/tidelog
certificates="$home/certificates"
month=2592000
umask 077
openssl x509 -checkend "$month" -noout -in "$certificates/broker.pem" > /dev/null 2>&1 && exit 0
if [ ! -e "$authority/authority.pem" ]; then
    # Without keyUsage and authorityKeyIdentifier, clients on Python 3.13 and newer refuse the certificates.
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 -subj "/CN=Tidelog authority" \
        -addext keyUsage=critical,keyCertSign,cRLSign -keyout "$authority/authority.key" -out "$authority/authority.new"
    mv "$authority/authority.new" "$authority/authority.pem"
fi
work="$home/certificates.new"
rm -rf "$work"
mkdir -p "$work" "$certificates"
openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes \
    -subj "/CN=broker" -keyout "$work/broker.key" -out "$work/broker.csr"
printf 'subjectAltName=DNS:localhost,DNS:broker-secure,IP:127.0.0.1\nauthorityKeyIdentifier=keyid' > "$work/broker.ext"
openssl x509 -req -in "$work/broker.csr" -CA "$authority/authority.pem" -CAkey "$authority/authority.key" \
    -set_serial "0x$(openssl rand -hex 16)" -days 365 -extfile "$work/broker.ext" -out "$work/broker.crt"
cat "$work/broker.key" "$work/broker.crt" > "$work/broker.pem"
cp "$authority/authority.pem" "$certificates"
if [ ! -e "$certificates/broker.pem" ]; then
    tidelog storage add-user "$home/data" admin --password-file /run/secrets/admin-password
fi
# Last, because its presence says that everything above was done.
mv "$work/broker.pem" "$certificates"
rm -r "$work"
