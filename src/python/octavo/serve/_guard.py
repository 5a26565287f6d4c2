"""Who may ask: bearer tokens, and names under which browsers may not reach the server.

A browser sends requests for any page that its user looks at, also to addresses that only the user's machine reaches. Two headers tell them apart. Origin
says which page asks: requests with one are refused unless it is allowed. Host says under which name: a page of evil.example can let that name point to
127.0.0.1 (DNS rebinding), so names that are not ours are refused. An address in digits or localhost cannot be taken over like that. A browser cannot leave Host
out or send two of them; requests that do are refused, as HTTP/1.1 demands."""
import hashlib
import hmac
import ipaddress
import pathlib
import re
import socket
import ssl
from typing import Dict, FrozenSet, List, Optional, Sequence

from .._errors import FileError, UsageError
from ._errors import BadRequest, Forbidden, ServeError, Unauthorized
from ._settings import Settings

_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]{16,1024}")


class Guard:
    """Everything that requests are judged by before they are read. reload() reads tokens and the certificate again. Raises FileError, UsageError."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.generation = 0  # of the tokens
        self._contexts: Dict[str, ssl.SSLContext] = {}
        names = {"localhost", settings.host.lower(), socket.gethostname().lower()}
        self._hosts: FrozenSet[str] = frozenset(names | {n.lower() for n in settings.allow_host})
        self._origins: FrozenSet[str] = frozenset(o.lower() for o in settings.allow_origin)
        self.reload()

    def reload(self) -> None:
        """On an error everything stays as it was."""
        settings = self.settings
        admins = read_tokens(settings.repository_token_file, "--repository-token-file")
        users = read_tokens(settings.token_file, "--token-file")
        contexts: Dict[str, ssl.SSLContext] = {}
        for protocol in ("http/1.1", "h2") if settings.tls_cert is not None else ():
            # New ones: load_cert_chain changes the certificate before it fails because of the key.
            contexts[protocol] = made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            made.minimum_version = ssl.TLSVersion.TLSv1_2
            made.set_alpn_protocols([protocol])
            try:
                made.load_cert_chain(settings.tls_cert or "", settings.tls_key, password=lambda: "")  # a key with a password is an error, not a question
            except (OSError, ssl.SSLError) as e:
                raise FileError(f"--tls-cert {settings.tls_cert} and --tls-key {settings.tls_key} are not a certificate chain and its key in PEM: {e}") from None
        self._contexts = contexts
        self._admins, self._users, self.generation = admins, users, self.generation + 1

    def tls(self, protocol: str) -> Optional[ssl.SSLContext]:
        """What offers `protocol` ("h2", "http/1.1") to the next connection; None: no TLS. reload() makes another one."""
        return self._contexts.get(protocol)

    def admit(self, host: Optional[str], origin: str, authorization: str, *, public: bool = False, change: bool = False) -> None:
        """Raises BadRequest, Forbidden or Unauthorized. Empty: the header is not there. `host` None: of gRPC, which browsers do not speak. `public`: health, which tells
        nothing. `change`: loads or unloads models."""
        if host is not None and not host.strip():
            raise BadRequest("the request has no Host, or an empty one; HTTP/1.1 demands it, and this server demands it of HTTP/1.0 too: Host: localhost")
        if origin and origin.lower() not in self._origins:
            raise Forbidden(f"a page of {origin[:200]!r} asks by a browser, which is not allowed; the operator can allow it: --allow-origin {origin[:200]}")
        if host is not None and not self._users and not self._named(host):
            raise Forbidden(f"{host[:200]!r} is not a name of this server; the operator can add it: --allow-host {bare(host)[:200]}")
        if change and not self._admins:
            raise Forbidden("loading and unloading by clients is switched off; the operator can allow it to those who have a token: --repository-token-file FILE")
        if public or not (self._users or change):
            return
        kind, _, token = authorization.partition(" ")
        if kind.lower() != "bearer":
            raise Unauthorized("a token is needed: Authorization: Bearer TOKEN")
        digest = hashlib.sha256(token.strip().encode("utf-8", "surrogateescape")).digest()
        known = [any([hmac.compare_digest(digest, one) for one in some]) for some in (self._admins, self._users)]  # lists: the time says nothing
        if not (known[0] or (known[1] and not change)):
            raise Forbidden("this token may not load and unload models; one of --repository-token-file may") if known[1] else Unauthorized("the token is not known")

    def _named(self, host: str) -> bool:
        name = bare(host)
        if "*" in self._hosts or name in self._hosts:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

    def admits(self, *headers: str) -> bool:
        try:
            self.admit(*headers)
        except ServeError:
            return False
        return True

    def open_to(self) -> Optional[str]:
        """What should be said when the server starts; None: nothing."""
        if self._users or self.settings.host in _LOOPBACK:
            return None
        return f"warning: whoever reaches {self.settings.host} can use the models: no --token-file was given"


_LOOPBACK = ("127.0.0.1", "localhost", "::1")


def only(hosts: Sequence[str]) -> str:
    """The Host line of a request; empty: there is none. Raises BadRequest where there are several, of which a proxy may have judged another one."""
    if len(hosts) > 1:
        raise BadRequest(f"the request has {len(hosts)} Host lines; give one")
    return hosts[0] if hosts else ""


def bare(host: str) -> str:
    """A Host header without its port and brackets, in small letters."""
    host = host.strip().lower()
    if host.startswith("["):
        return host[1:].split("]")[0]
    return host.rsplit(":", 1)[0] if host.count(":") == 1 else host


def read_tokens(path: Optional[str], option: str) -> List[bytes]:
    """Digests of the tokens in a file, one a line; lines that begin with # and empty ones are left out."""
    if path is None:
        return []
    try:
        lines = [line.strip() for line in pathlib.Path(path).read_text("utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as e:
        raise FileError(f"cannot read {option} {path}: {e}") from None
    tokens = [line for line in lines if line and not line.startswith("#")]
    for number, token in enumerate(tokens, 1):
        if not _TOKEN.fullmatch(token):
            raise UsageError(f"{option} {path}: token {number} of {len(tokens)} is not 16 to 1024 letters, digits and ._~+/=- (make one with: openssl rand -hex 32)")
    if not tokens:
        raise UsageError(f"{option} {path} has no token; write one a line (make one with: openssl rand -hex 32)")
    return [hashlib.sha256(token.encode()).digest() for token in tokens]
