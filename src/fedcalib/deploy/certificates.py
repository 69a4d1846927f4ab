"""Keys and certificates for a pilot: one authority, one server, and two keys per site.

The node key lets a site's node into the federation; the identity key signs for the site in secure aggregation. In a
consortium each site makes its own two and sends only the public halves; here one command makes all of them.

Later in the year sites are added, certificates are renewed, and keys that somebody else may have seen are replaced. The
list of identities (`directory.json`) then changes, and every site needs the new one.
"""

from __future__ import annotations

import ipaddress
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID

from fedcalib import files
from fedcalib.errors import InputError
from fedcalib.remote.site import read_directory, read_identity, write_identity
from fedcalib.secagg import Directory, SigningIdentity

WARN_DAYS: Final = 30  # before a certificate ends
_VALID_DAYS: Final = 365
_PRIVATE: Final = ("ca.key", "server.key", "node", "identity.json")


def make(folder: Path, sites: Sequence[str], hosts: Sequence[str]) -> dict[str, Path]:
    """Write a certificate authority, a server certificate for some hosts, and the keys of each site."""
    if folder.exists() and any(folder.iterdir()):
        raise InputError(
            f"Expected a new or empty folder for keys, found {folder}; keys are never overwritten, so name another one."
        )
    _check_names(sites)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    written = _tls(folder, hosts)
    publics = {site: _site_keys(folder, site) for site in sites}
    _write_directory(folder, Directory(publics))
    return written | {site: folder / site for site in sites}


def add(folder: Path, site: str) -> Path:
    """Write the keys of a further site, and every site's list of identities with it."""
    _check_names([site])
    directory = read_directory(folder / "directory.json")
    if (folder / site).exists() or site in directory.keys:
        raise InputError(f"Expected the name of a new site, found '{site}' in {folder}; see `fedcalib certs rotate`.")
    _write_directory(folder, Directory({**directory.keys, site: _site_keys(folder, site)}))
    return folder / site


def rotate(folder: Path, site: str) -> Path:
    """Replace both keys of a site, and every site's list of identities; the old keys are gone."""
    directory = read_directory(folder / "directory.json")
    if site not in directory.keys:
        raise InputError(f"Expected a site of {folder}, found '{site}'; there are {', '.join(sorted(directory.keys))}.")
    _write_directory(folder, Directory({**directory.keys, site: _site_keys(folder, site)}))
    return folder / site


def remove(folder: Path, site: str) -> bool:
    """Write every site's list of identities without a site; False where it was not in there."""
    directory = read_directory(folder / "directory.json")
    if site not in directory.keys:
        return False
    _write_directory(folder, Directory({name: key for name, key in directory.keys.items() if name != site}))
    return True


def renew(folder: Path, hosts: Sequence[str]) -> dict[str, Path]:
    """Write new certificates of the authority and of the server, valid for another year.

    The authority keeps its key and name. So sites that still have its old certificate accept the server's new one
    until the old one ends. Without hosts, the server's certificate is for those that it was for.
    """
    key = _authority_key(folder / "ca.key")
    known = hosts or _hosts(read_certificate(folder / "server.pem"))
    written = _tls(folder, known, key)
    for site in read_directory(folder / "directory.json").keys:
        if (folder / site).is_dir():
            files.write(folder / site / "ca.crt", (folder / "ca.crt").read_bytes())
    return written


@final
@dataclass(frozen=True)
class Finding:
    """What was found about one file of a folder of keys: what it is, whether it is fine, and what to do."""

    file: Path
    fine: bool
    what: str


def check(folder: Path, now: datetime | None = None) -> list[Finding]:
    """Look at a folder of keys, of the server or of one site: when certificates end, rights, keys that belong together.

    Certificates that end within 30 days are not fine, so that there is time to renew them.
    """
    moment = now or datetime.now(UTC)
    names = ("ca.crt", "server.pem")
    found = [_expiry(folder / name, moment) for name in names if (folder / name).exists()]
    found += [_rights(path) for path in sorted(folder.rglob("*")) if path.name in _PRIVATE]
    found += [_listed(path) for path in sorted(folder.rglob("identity.json"))]
    if not found:
        raise InputError(f"Expected keys in {folder}, found none; see `fedcalib certs`.")
    return found


def days_left(path: Path, now: datetime | None = None) -> float:
    """Days until a certificate ends; negative once it has ended."""
    left = read_certificate(path).not_valid_after_utc - (now or datetime.now(UTC))
    return float(left / timedelta(days=1))


def read_certificate(path: Path) -> Any:
    """The certificate in a PEM file."""
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except OSError as error:
        raise InputError(f"Expected the certificate {path}, found: {error.strerror or error}.") from error
    except ValueError as error:
        raise InputError(f"Expected a certificate in {path}, found something else; see `fedcalib certs`.") from error


def _expiry(path: Path, now: datetime) -> Finding:
    left = days_left(path, now)
    if left < 0:
        return Finding(path, False, f"ended {-left:.0f} days ago; run `fedcalib certs renew` at the server")
    soon = left < WARN_DAYS
    advice = "; run `fedcalib certs renew` at the server, and send ca.crt to the sites" if soon else ""
    return Finding(path, not soon, f"valid for {left:.0f} days{advice}")


def _rights(path: Path) -> Finding:
    mode = stat.S_IMODE(path.stat().st_mode)
    private = not mode & 0o077
    return Finding(path, private, "private" if private else f"others may read it; run `chmod 600 {path}`")


def _listed(path: Path) -> Finding:
    """Whether the list of identities beside an identity has its public half."""
    identity, directory = read_identity(path), read_directory(path.parent / "directory.json")
    if directory.keys.get(identity.name) == identity.public:
        return Finding(path, True, f"is '{identity.name}' of {len(directory.keys)} sites in directory.json")
    return Finding(path, False, f"'{identity.name}' has another key in directory.json, or none; get the newest list")


def _check_names(sites: Sequence[str]) -> None:
    if not sites or len(set(sites)) != len(sites) or any("/" in site or site.startswith(".") for site in sites):
        raise InputError("Expected different site names that can be folder names; leave out slashes and leading dots.")


def _site_keys(folder: Path, site: str) -> bytes:
    """Write the keys of a site; returns the public half of its identity."""
    identity, place = SigningIdentity(site), folder / site
    write_identity(place / "identity.json", identity)
    _node_key(place)
    files.write(place / "ca.crt", (folder / "ca.crt").read_bytes())
    return identity.public


def _write_directory(folder: Path, directory: Directory) -> None:
    """Write the list of identities for the server and for every site whose folder is here."""
    text = directory.to_json().encode()
    for site in directory.keys:
        if (folder / site).is_dir():
            files.write(folder / site / "directory.json", text)
    files.write(folder / "directory.json", text)


def _authority_key(path: Path) -> Any:
    try:
        return load_pem_private_key(path.read_bytes(), None)
    except OSError as error:
        raise InputError(
            f"Expected the authority's key {path}, found: {error.strerror or error}; renew where `fedcalib certs` ran."
        ) from error
    except (ValueError, TypeError) as error:
        raise InputError(f"Expected the authority's key in {path}, found something else.") from error


def _hosts(certificate: Any) -> list[str]:
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return [str(name.value) for name in names]


def _tls(folder: Path, hosts: Sequence[str], authority_key: Any = None) -> dict[str, Path]:
    authority_key = authority_key or ec.generate_private_key(ec.SECP256R1())
    server_key = ec.generate_private_key(ec.SECP256R1())
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
