"""The catalogues that are shipped say everything that the pages say."""

import ast
import gettext
import re
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "django_claims"
LANGUAGES = ("de", "es", "fr")
CALLS = re.compile(r"n?p?gettext(_lazy)?|_")
IN_TEMPLATES = re.compile(r"""{%\s*translate\s+(?:"([^"]+)"|'([^']+)')(?:\s+context\s+"([^"]+)")?""")
FIELDS = re.compile(r"%\(\w+\)[a-z]|%%|\{\w+\}")


def catalogue(language):
    """Return what the compiled catalogue has: by text, or by text and plural form."""
    with (PACKAGE / "locale" / language / "LC_MESSAGES" / "django.mo").open("rb") as file:
        found = dict(gettext.GNUTranslations(file)._catalog)
    found.pop("")
    return found


def said_in_python():
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            name = getattr(node.func, "id", "") if isinstance(node, ast.Call) else ""
            if CALLS.fullmatch(name):
                words = [one.value for one in node.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
                if words:
                    yield "\x04".join(words[:2]) if "pgettext" in name else words[0]


def said_in_templates():
    for path in (PACKAGE / "templates").rglob("*.html"):
        for double, single, context in IN_TEMPLATES.findall(path.read_text()):
            yield f"{context}\x04{double or single}" if context else double or single


def djangos_own():
    """Return what Django's own catalogue has: "yes" or "All" need not be ours."""
    import django.contrib.admin

    path = Path(django.contrib.admin.__file__).parent / "locale" / "de" / "LC_MESSAGES" / "django.mo"
    with path.open("rb") as file:
        return set(gettext.GNUTranslations(file)._catalog)


@pytest.mark.parametrize("language", LANGUAGES)
def test_everything_that_is_said_is_translated(language):
    known = {key[0] if isinstance(key, tuple) else key for key in catalogue(language)} | djangos_own()
    said = {*said_in_python(), *said_in_templates()}

    assert len(said) > 100
    assert sorted(said - known) == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_translation_has_the_fields_of_its_original(language):
    wrong = {}
    for key, text in catalogue(language).items():
        original, plural = key if isinstance(key, tuple) else (key, 0)
        fields = set(FIELDS.findall(original)) - {"%%"}
        if plural and "%(seconds)s" in text:
            fields.add("%(seconds)s")
        if set(FIELDS.findall(text)) - {"%%"} != fields:
            wrong[original] = text

    assert wrong == {}


@pytest.mark.parametrize("language", LANGUAGES)
def test_what_is_compiled_is_what_is_written(language):
    source = (PACKAGE / "locale" / language / "LC_MESSAGES" / "django.po").read_text()
    written = [ast.literal_eval(line.split(" ", 1)[1]) for line in source.splitlines() if line.startswith("msgstr")]
    compiled = set(catalogue(language).values())

    for text in written[1:]:
        assert text == "" or any(one.startswith(text) for one in compiled), text
