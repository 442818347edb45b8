"""Reading a shell's script the way shells do: the words of each command in it. Pure.

Whatever quotation, continuation, substitution or here-document says, a word comes out as its program
will get it. Where that is known only when the script runs, the word holds ``UNKNOWN``. A script that
shells may read in two ways is not read at all.
"""

from __future__ import annotations

import re

UNKNOWN = "\ue000"
"""Stands in a word where something is put that only a run can tell; what is known of it follows."""
WILD = "\ue001"
"""Stands for the part of a file's name that a wildcard finds."""

_BLANK = " \t"
_ENDS = "();<>|&\n \t"
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_NAME = re.compile(r"[A-Za-z_]\w*|[0-9@*#?$!-]", re.ASCII)
_REDIRECTION = re.compile(r"<<<|<<-|<<|<&|<>|>>|>&|>\||<|>")
_SUBSCRIPT = re.compile(r"\w\[[^\]\n]*$")
_HIDDEN = re.compile(r"\$\(|`")
_MAX_DEPTH = 24


class Unreadable(ValueError):
    """The script says what can't be read for certain."""


def commands_of(script: str) -> list[list[str]]:
    """Each command with its words, those of substitutions included. A redirection counts as one
    that touches its target. Raises ``Unreadable``."""
    if (found := _CONTROL.search(script)) is not None:
        raise Unreadable(f"it holds the control character {found[0]!r}")
    if UNKNOWN in script or WILD in script:
        raise Unreadable("what it says can't be known before it runs")
    reader = _Reader(script, 0)
    reader.commands(inside=False)
    return reader.found


class _Reader:
    """A position in a script, and what was found up to it."""

    def __init__(self, text: str, depth: int) -> None:
        if depth > _MAX_DEPTH:
            raise Unreadable("what is in it is nested too deep")
        self.found: list[list[str]] = []
        self._text = text
        self._at = 0
        self._depth = depth
        self._words: list[str] = []
        self._word: str | None = None
        self._documents: list[tuple[str, bool, bool]] = []
        self._is_arithmetic = False

    # -- commands ----------------------------------------------------------------------------------

    def commands(self, *, inside: bool) -> None:
        """Up to the end, or up to the parenthesis that closes a substitution."""
        depth, text = 0, self._text
        while self._at < len(text):
            sign = text[self._at]
            if sign in _BLANK:
                self._end_word()
                self._at += 1
            elif sign == "\n":
                self._end_command()
                self._at += 1
                self._skip_documents()
            elif sign in ";&|":
                self._end_command()
                self._at += 1
            elif sign == "(":
                self._is_arithmetic |= text.startswith("((", self._at)
                self._end_command()
                depth += 1
                self._at += 1
            elif sign == ")":
                self._end_command()
                self._at += 1
                if inside and depth == 0:
                    self._close()
                    return
                depth -= depth > 0
            elif sign in "<>" and text[self._at + 1 : self._at + 2] != "(":
                self._redirection()
            elif sign == "#" and self._word is None:
                end = text.find("\n", self._at)
                self._at = len(text) if end < 0 else end
            else:
                self._piece()
        if inside:
            raise Unreadable("a substitution is not closed")
        self._end_command()
        if self._documents:
            raise Unreadable("a here-document is not closed")

    def _close(self) -> None:
        # A pattern of "case" has a parenthesis of its own, so this one may not be the end.
        if any("case" in words for words in self.found) or self._documents:
            raise Unreadable("it can't be told where a substitution ends")

    def _end_word(self) -> None:
        if self._word is not None:
            self._words.append(self._word)
        self._word = None

    def _end_command(self) -> None:
        self._end_word()
        if self._words:
            self.found.append(self._words)
        self._words = []

    # -- words -------------------------------------------------------------------------------------

    def _put(self, text: str) -> None:
        self._word = (self._word or "") + text

    def _piece(self) -> None:
        text, sign = self._text, self._text[self._at]
        following = text[self._at + 1 : self._at + 2]
        if sign == "'":
            end = text.find("'", self._at + 1)
            if end < 0:
                raise Unreadable("a quotation is not closed")
            quoted = text[self._at + 1 : end]
            self._at = end + 1
            self._hidden(quoted)
            self._put(quoted)
        elif sign == '"':
            self._at += 1
            self._put(self._double())
        elif sign == "\\":
            self._at += 2
            if following != "\n":
                self._put(following)
        elif sign in "<>":  # <( and >(
            self._at += 2
            self._inner()
            self._put(UNKNOWN)
        elif sign in "$`":
            self._put(self._expansion(is_quoted=False))
        elif sign in "*?" or (sign == "[" and not self._is_test(following)):
            self._at += 1
            self._put(WILD)
        elif sign == "{" and not self._is_plain_brace(following):
            self._at += 1
            self._put(UNKNOWN + sign)
        else:
            self._at += 1
            self._put(sign)

    def _is_test(self, following: str) -> bool:
        """``[`` and ``[[`` as programs."""
        return self._word in (None, "[") and following in ("", "[", *_BLANK, "\n")

    def _is_plain_brace(self, following: str) -> bool:
        return following == "}" or (self._word is None and following in ("", *_ENDS))

    def _double(self) -> str:
        """The rest of a text in double quotation marks."""
        text, taken = self._text, ""
        while self._at < len(text):
            sign, following = text[self._at], text[self._at + 1 : self._at + 2]
            if sign == '"':
                self._at += 1
                return taken
            if sign == "\\":
                self._at += 2
                taken += "" if following == "\n" else following
                if following not in '$`"\\\n':
                    taken = taken[:-1] + sign + following
            elif sign in "$`":
                taken += self._expansion(is_quoted=True)
            else:
                self._at += 1
                taken += sign
        raise Unreadable("a quotation is not closed")

    # -- expansions --------------------------------------------------------------------------------

    def _expansion(self, *, is_quoted: bool) -> str:
        text = self._text
        if text[self._at] == "`":
            self._backticks()
            return UNKNOWN
        rest = text[self._at + 1 : self._at + 3]
        if rest[:1] in ("'", '"') and not is_quoted:
            raise Unreadable("$'…' hides what is said, and shells read $\"…\" differently")
        if rest[:1] == "[":
            raise Unreadable("$[…] is an arithmetic that shells read differently")
        if rest == "((" and self._skip_arithmetic():
            return UNKNOWN
        if rest[:1] == "(":
            self._at += 2
            self._inner()
            return UNKNOWN
        if rest[:1] == "{":
            return self._parameter()
        name = _NAME.match(text, self._at + 1)
        self._at += 1 if name is None else 1 + len(name[0])
        return "$" if name is None else UNKNOWN + name[0]

    def _inner(self) -> None:
        """Commands up to the closing parenthesis, which are commands of this script, too."""
        below = _Reader(self._text, self._depth + 1)
        below._at = self._at
        below.commands(inside=True)
        self._at = below._at
        self.found += below.found

    def _skip_arithmetic(self) -> bool:
        """Past ``$(( … ))`` where it can be nothing else; what is put into it is looked at."""
        depth, at, text = 2, self._at + 3, self._text
        while at < len(text) and depth and text[at] not in "'\"#;\n\\":
            depth += (text[at] == "(") - (text[at] == ")")
            at += 1
            if depth == 1 and text[at : at + 1] != ")":
                return False
        if depth:
            return False
        self._scan(text[self._at + 3 : at - 2])
        self._at = at
        return True

    def _parameter(self) -> str:
        """Past ``${ … }``."""
        text, began = self._text, self._at
        self._at += 2
        while self._at < len(text):
            sign = text[self._at]
            if sign == "}":
                self._at += 1
                inner = text[began + 2 : self._at - 1]
                if inner.endswith("@P"):
                    raise Unreadable("${…@P} runs what is in the variable")
                name = _NAME.match(inner)
                return UNKNOWN + (name[0] if name is not None and name[0] == inner else "")
            if sign in "'\"":
                raise Unreadable("shells read quotation within ${…} differently")
            if sign == "\\":
                self._at += 2
            elif sign in "$`":
                self._expansion(is_quoted=True)
            else:
                self._at += 1
        raise Unreadable("${ is not closed")

    def _backticks(self) -> None:
        text, at, inner = self._text, self._at + 1, ""
        while at < len(text) and text[at] != "`":
            is_escape = text[at] == "\\" and text[at + 1 : at + 2] in ("`", "$", "\\")
            at += is_escape
            inner += text[at : at + 1]
            at += 1
        if at >= len(text):
            raise Unreadable("a substitution is not closed")
        self._at = at + 1
        self._below(inner)

    def _below(self, script: str) -> None:
        below = _Reader(script, self._depth + 1)
        below.commands(inside=False)
        self.found += below.found

    def _scan(self, text: str) -> None:
        """The substitutions in a text that is no command itself."""
        below = _Reader(text, self._depth + 1)
        while below._at < len(text):
            if text[below._at] == "\\":
                below._at += 2
            elif text[below._at] in "$`":
                below._expansion(is_quoted=True)
            else:
                below._at += 1
        self.found += below.found

    def _hidden(self, text: str) -> None:
        """Substitutions in a quoted text: arithmetic runs them when it meets it in a variable. In a
        message they are judged once too often, at worst."""
        if _HIDDEN.search(text) is None:
            return
        try:
            self._scan(text)
        except Unreadable as error:
            raise Unreadable(f"a quoted text holds a substitution, and {error}") from None

    # -- redirections ------------------------------------------------------------------------------

    def _redirection(self) -> None:
        # The digit of "2>" is no word of the command.
        if self._word is not None and self._word.isdigit():
            self._word = None
        self._end_word()
        operator = _REDIRECTION.match(self._text, self._at)
        assert operator is not None
        began = self._text.rfind("\n", 0, self._at) + 1
        self._at = operator.end()
        words, self._words = self._words, []
        raw = self._target()
        if operator[0] in ("<<", "<<-"):
            if self._is_arithmetic or _SUBSCRIPT.search(self._text[began : operator.start()]):
                raise Unreadable("a shift and a here-document can't be told apart")
            self._open_document(raw, strips=operator[0] == "<<-")
        elif operator[0] != "<<<":
            self.found.append(["tee", self._word or ""])
        self._word, self._words = None, words

    def _target(self) -> str:
        """Read one word after an operator; it is in ``_word``, and returned as it is written."""
        text = self._text
        while text[self._at : self._at + 1] in (" ", "\t"):
            self._at += 1
        began = self._at
        while self._at < len(text) and (
            text[self._at] not in _ENDS or text.startswith(("<(", ">("), self._at)
        ):
            self._piece()
        if self._at == began:
            raise Unreadable("a redirection leads nowhere")
        return text[began : self._at]

    def _open_document(self, raw: str, *, strips: bool) -> None:
        if re.search(r"[$`{(\n]|\\\\", raw):
            raise Unreadable(f"a here-document can't be known to end at {raw!r}")
        end = re.sub(r"['\"\\]", "", raw)
        self._documents.append((end, strips, end != raw))

    def _skip_documents(self) -> None:
        for end, strips, is_quoted in self._documents:
            body: list[str] = []
            while (line := self._line(joins=not is_quoted)) is not None:
                bare = line.lstrip("\t") if strips else line
                if bare == end:
                    break
                body.append(line)
            else:
                raise Unreadable("a here-document is not closed")
            if not is_quoted:
                self._scan("\n".join(body))
        self._documents = []

    def _line(self, *, joins: bool) -> str | None:
        """The next line of a here-document, where it is so with those that go on after it."""
        if self._at >= len(self._text):
            return None
        line = ""
        while True:
            end = self._text.find("\n", self._at)
            end = len(self._text) if end < 0 else end
            line += self._text[self._at : end]
            self._at = min(len(self._text), end + 1)
            trailing = len(line) - len(line.rstrip("\\"))
            if not joins or not trailing % 2 or self._at >= len(self._text):
                return line
            line = line[:-1]
