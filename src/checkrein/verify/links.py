"""The check `links`: what a Markdown report links to and shows is there, inside the run's folder.

Links are data: nothing is fetched. Links to other hosts are counted; a link that leads out of the folder, or to a file of this machine, is a finding.
"""

import posixpath
import re
from collections.abc import Iterator
from typing import ClassVar, Final, NamedTuple
from urllib.parse import unquote

from checkrein.ports.verifier import CheckContext, Measurement
from checkrein.values import JsonObject, shorten
from checkrein.verify.artifacts import Unmet, finding, open_artifact, path_problem, read_artifact, read_text
from checkrein.verify.base import ArtifactCheck, refuse
from checkrein.verify.markdown import Document, Link, read_markdown

__all__ = ["LinksCheck"]

MAX_LINKS: Final = 10_000
MAX_LISTED: Final = 10
MAX_PAGES: Final = 100

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_COUNTED: Final = frozenset({"http:", "https:", "mailto:", "tel:"})
_MARKDOWN: Final = (".md", ".markdown")


class _Broken(NamedTuple):
    code: str
    text: str


class LinksCheck(ArtifactCheck, frozen=True, kw_only=True):
    """The relative links and images of a Markdown report resolve.

    Attributes:
        min_links: so many links or images must lead to files of the run, at least.
    """

    name: ClassVar[str] = "links"
    revision: ClassVar[str] = "1"
    min_links: int = 0

    def validated(self) -> None:
        """Refuse a negative number.

        Raises:
            TaskError: it is one.
        """
        if self.min_links < 0:
            refuse("min_links", f"is {self.min_links}", "give 0 or more")

    def in_words(self) -> str:
        """Return the title."""
        return f"every link and image of {self.path} leads somewhere"

    def look(self, context: CheckContext) -> Measurement:
        """Follow every link as far as the run's folder goes."""
        document = read_markdown(read_text(read_artifact(context.folder, self.path), self.path), self.path)
        if len(document.links) > MAX_LINKS:
            raise Unmet(
                "too_large",
                f"{self.path} has {len(document.links):,} links, more than the {MAX_LINKS:,} that are followed",
            )
        follower = _Follower(context, self.path, document)
        broken = [fault for link in document.links for fault in follower.faults(link)]
        files, elsewhere = follower.files, follower.elsewhere
        listed = [fault.text for fault in broken[:MAX_LISTED]]
        data = {"files": files, "elsewhere": elsewhere, "broken": listed}
        if broken:
            more = f"; and {len(broken) - MAX_LISTED} more" if len(broken) > MAX_LISTED else ""
            return finding(
                broken[0].code, f"{self.path} has {len(broken)} broken links: {'; '.join(listed)}{more}", data
            )
        if files < self.min_links:
            return finding(
                "too_few_links",
                f"{self.path} links to files of the run {files} times, at least {self.min_links} are required",
                data,
            )
        return Measurement(
            passed=True,
            text=f"{self.path}: {files} links and images lead to files that exist; {elsewhere} lead elsewhere and were not fetched",
            data=JsonObject(data),
        )


class _Follower:
    """Follows the links of one report; files are looked at once."""

    def __init__(self, context: CheckContext, path: str, document: Document) -> None:
        self._context = context
        self._folder = posixpath.dirname(path)
        self._path = path
        self._known: dict[str, str] = {path: ""}
        self._anchors: dict[str, frozenset[str]] = {path: document.anchors}
        self.files = 0
        self.elsewhere = 0

    def faults(self, link: Link) -> Iterator[_Broken]:
        """Yield what is wrong with a link, and count it when nothing is."""
        target = link.target.strip()
        scheme = _SCHEME.match(target)
        what = f"line {link.line}: {'image' if link.is_image else 'link'} {shorten(target, 200)!r}"
        if target.startswith("//") or (scheme and scheme.group().lower() in _COUNTED):
            self.elsewhere += 1
        elif scheme:
            yield _Broken(
                "escapes", f"{what} is an address of kind {scheme.group()[:-1]!r}, which a report cannot rely on"
            )
        elif not target:
            yield _Broken("broken_link", f"{what} leads nowhere")
        else:
            fault = self._fault(target)
            if fault:
                yield _Broken(fault.code, f"{what} {fault.text}")

    def _fault(self, target: str) -> _Broken | None:
        place, _, fragment = target.partition("#")
        name = unquote(place.partition("?")[0])
        path = posixpath.normpath(posixpath.join(self._folder, name)) if name else self._path
        problem = (
            "leads out of the run's folder"
            if name.startswith("/") or path.startswith("../") or path == ".."
            else path_problem(path)
        )
        if problem:
            return _Broken("escapes" if problem.startswith("leads") else "broken_link", problem)
        missing = self._missing(path)
        if missing:
            return _Broken("escapes" if "symlink" in missing else "broken_link", missing)
        self.files += path != self._path
        if fragment and path.lower().endswith(_MARKDOWN) and not self._has_anchor(path, unquote(fragment)):
            return _Broken("broken_anchor", f"names an anchor that {path} does not have")
        return None

    def _missing(self, path: str) -> str:
        if path not in self._known:
            try:
                open_artifact(self._context.folder, path).close()
                self._known[path] = ""
            except Unmet as unmet:
                self._known[path] = f"does not resolve: {unmet}"
        return self._known[path]

    def _has_anchor(self, path: str, fragment: str) -> bool:
        if path not in self._anchors:
            if len(self._anchors) >= MAX_PAGES:
                raise Unmet("too_large", f"{self._path} names anchors of more than {MAX_PAGES} other pages")
            self._anchors[path] = read_markdown(
                read_text(read_artifact(self._context.folder, path), path), path
            ).anchors
        anchors = self._anchors[path]
        return fragment in anchors or fragment.lower() in anchors
