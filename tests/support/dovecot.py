"""A real IMAP server for tests: Debian's dovecot, on loopback, with mailboxes as directories."""

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.support.external_server import (
    ExternalServer,
    ServerUnavailable,
    answers,
    port_of,
    reserved_port,
)

if os.name == "posix":
    import fcntl
    import pwd

PACKAGE = "dovecot-imapd"
START_SECONDS = 60.0
INSTALL_SECONDS = 300
_NO_START = Path("/usr/sbin/policy-rc.d")
_PLACES = ("/usr/sbin", "/usr/local/sbin", "/usr/bin", "/opt/homebrew/sbin")

_SETTINGS = """
base_dir = {home}/run
state_dir = {home}/state
log_path = {home}/log
listen = 127.0.0.1
protocols = imap
ssl = no
disable_plaintext_auth = no
auth_failure_delay = 0
first_valid_uid = 0
default_internal_user = {internal}
default_login_user = {login}
default_internal_group = {group}
mail_location = maildir:{home}/mail/%u
mailbox_idle_check_interval = 1 secs
passdb {{
  driver = passwd-file
  args = scheme=PLAIN {home}/users/%u
}}
userdb {{
  driver = static
  args = uid={owner} gid={owner_group} home={home}/mail/%u
}}
service anvil {{
  unix_listener anvil-auth-penalty {{
    mode = 0
  }}
  chroot =
}}
service imap-login {{
  chroot =
  inet_listener imap {{
    port = {port}
  }}
  inet_listener imaps {{
    port = 0
  }}
}}
"""


class Dovecot:
    """An IMAP server with as many mailboxes as are wanted."""

    def __init__(self) -> None:
        program = _program() or _installed()
        _check_version(program)
        self._reservation = reserved_port()
        self.port = port_of(self._reservation)
        self._home = Path(tempfile.mkdtemp(prefix="sessionary-imap-")).resolve()
        self._home.chmod(0o755)
        self._owner = _mail_owner()
        (self._home / "mail").mkdir()
        (self._home / "users").mkdir()
        (self._home / "dovecot.conf").write_text(self._settings())
        self._server = ExternalServer(
            [program, "-F", "-c", self._home / "dovecot.conf"], self._home
        )
        self._server.wait_until(lambda: answers(self.port), seconds=START_SECONDS, what="dovecot")

    def add_user(self, name: str, password: str) -> Path:
        """Make a mailbox; return the directory where new mails are put."""
        folder = self._home / "mail" / name
        for each in (folder, folder / "new", folder / "cur", folder / "tmp"):
            each.mkdir()
            self.own(each)
        self.set_password(name, password)
        return folder

    def set_password(self, name: str, password: str) -> None:
        """Replace the password; the server notices a file with another time or another length."""
        (self._home / "users" / name).write_text(f"{name}:{{PLAIN}}{password}\n")

    def own(self, path: Path) -> None:
        """Make the user who owns the mails the owner of a file."""
        if os.geteuid() == 0:
            os.chown(path, *self._owner)

    def stop(self) -> None:
        """Stop the server and remove its directory."""
        self._server.stop()
        self._reservation.close()

    def _settings(self) -> str:
        is_root = os.geteuid() == 0
        me = pwd.getpwuid(os.geteuid()).pw_name
        return _SETTINGS.format(
            home=self._home,
            port=self.port,
            owner=self._owner[0],
            owner_group=self._owner[1],
            internal="dovecot" if is_root else me,
            login="dovenull" if is_root else me,
            group="dovecot" if is_root else str(os.getegid()),
        )


def _mail_owner() -> tuple[int, int]:
    if os.geteuid() != 0:
        return os.geteuid(), os.getegid()
    nobody = pwd.getpwnam("nobody")
    return nobody.pw_uid, nobody.pw_gid


def _program() -> str | None:
    return shutil.which("dovecot") or shutil.which("dovecot", path=os.pathsep.join(_PLACES))


def _check_version(program: str) -> None:
    asked = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    if not re.match(r"2\.3\.", asked.stdout):
        found = asked.stdout.strip() or asked.stderr.strip()
        raise ServerUnavailable(f"the tests of e-mail speak to dovecot 2.3, not to {found[:80]}")


def _installed() -> str:
    """Install the server with apt, if we are root."""
    apt = shutil.which("apt-get")
    if apt is None or os.geteuid() != 0:
        raise ServerUnavailable(
            f"the tests of e-mail need dovecot; install it: sudo apt-get install {PACKAGE}"
        )
    with (Path(tempfile.gettempdir()) / "sessionary-install-dovecot.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _program() is None:
            _install(apt)
    found = _program()
    if found is None:
        raise ServerUnavailable(f"apt-get install {PACKAGE} brought no program dovecot")
    return found


def _install(apt: str) -> None:
    # Debian starts what it installs; a mail server of the whole machine is not wanted.
    forbids = not _NO_START.exists()
    if forbids:
        _NO_START.write_text("#!/bin/sh\nexit 101\n")
        _NO_START.chmod(0o755)
    get = [apt, "-q", "-y", "-o", "DPkg::Lock::Timeout=120", "install"]
    try:
        first = _run([*get, "--no-install-recommends", PACKAGE])
        if first is not None:
            _run([apt, "-q", "-y", "update"])
            problem = _run([*get, "--no-install-recommends", PACKAGE])
            if problem is not None:
                raise ServerUnavailable(f"apt-get install {PACKAGE} failed: {problem}")
    finally:
        if forbids:
            _NO_START.unlink()


def _run(command: list[str]) -> str | None:
    """Run a command; its last line if it failed."""
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=INSTALL_SECONDS,
        check=False,
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
    )
    lines = done.stdout.strip().splitlines() or ["it printed nothing"]
    return None if done.returncode == 0 else lines[-1][:300]
