"""Keys and certificates for a pilot: one authority, one server, and two keys per site.

The node key lets a site's SuperNode into the federation; the identity key signs for the site in secure aggregation. In
a consortium each site makes its own two and sends only the public halves; here one command makes all of them.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import NameOID

from fedcalib import files
from fedcalib.errors import InputError
from fedcalib.remote.site import write_identity
from fedcalib.secagg import Directory, SigningIdentity

_VALID_DAYS: Final = 365


def make(folder: Path, sites: Sequence[str], hosts: Sequence[str]) -> dict[str, Path]:
    """Write a certificate authority, a server certificate for some hosts, and the keys of each site."""
    if folder.exists() and any(folder.iterdir()):
        raise InputError(
            f"Expected a new or empty folder for keys, found {folder}; keys are never overwritten, so name another one."
        )
    if not sites or len(set(sites)) != len(sites) or any("/" in site or site.startswith(".") for site in sites):
        raise InputError("Expected different site names that can be folder names; leave out slashes and leading dots.")
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    written = _tls(folder, hosts)
    identities = {site: SigningIdentity(site) for site in sites}
    directory = Directory({site: identity.public for site, identity in identities.items()})
    for site, identity in identities.items():
        place = folder / site
        write_identity(place / "identity.json", identity)
        _node_key(place)
        files.write(place / "directory.json", directory.to_json().encode())
        files.write(place / "ca.crt", (folder / "ca.crt").read_bytes())
        written[site] = place
    files.write(folder / "directory.json", directory.to_json().encode())
    return written


def _tls(folder: Path, hosts: Sequence[str]) -> dict[str, Path]:
    authority_key, server_key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    authority = _certificate("fedcalib pilot authority", authority_key, authority_key, None, ())
    server = _certificate("fedcalib server", server_key, authority_key, authority, hosts)
    files.write(folder / "ca.key", _private_pem(authority_key), private=True)
    files.write(folder / "ca.crt", authority.public_bytes(Encoding.PEM))
    files.write(folder / "server.key", _private_pem(server_key), private=True)
    files.write(folder / "server.pem", server.public_bytes(Encoding.PEM))
    return {"authority": folder / "ca.crt", "server": folder / "server.pem"}


def _certificate(name: str, key: Any, signer: Any, issuer: Any, hosts: Sequence[str]) -> Any:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer is None else issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(days=_VALID_DAYS))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
        .add_extension(_usage(issuer is None), critical=True)
    )
    if hosts:
        builder = builder.add_extension(x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False)
    return builder.sign(signer, hashes.SHA256())


def _usage(authority: bool) -> Any:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=authority,
        crl_sign=authority,
        encipher_only=False,
        decipher_only=False,
    )


def _host(host: str) -> Any:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _node_key(place: Path) -> None:
    """Write the key pair by which Flower admits a node: OpenSSH, on the curve P-384."""
    key = ec.generate_private_key(ec.SECP384R1())
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    files.write(place / "node", _private_pem(key, PrivateFormat.OpenSSH), private=True)
    files.write(place / "node.pub", public + b"\n")


def _private_pem(key: ec.EllipticCurvePrivateKey, form: PrivateFormat = PrivateFormat.PKCS8) -> bytes:
    return key.private_bytes(Encoding.PEM, form, NoEncryption())
