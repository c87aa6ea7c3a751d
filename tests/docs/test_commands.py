"""Command lines in the documentation: the verbs and options that they use exist, and all that exist are told."""

import argparse
import configparser
import importlib
import re
import shlex
import tomllib

import pytest
import yaml
from celery.bin.celery import celery
from django.core.management import CommandError, get_commands, load_command_class
from django.core.management.base import BaseCommand

from django_claims import single_instance
from django_claims.management.commands.claims import VERBS
from django_claims.management.commands.claims import Command as Claims
from tests.docs.pages import PAGES, ROOT, blocks_of, prose

SHELL = ("sh", "text", "ini", "yaml", "")
OUR_COMMANDS = {"nightly_report", "import_orders", "demo", "seed"}  # of the example project
MADE_UP = {"feed", "report"}  # guarded commands that only the pages know
OTHERS = {
    "pip", "python3", "python", "django-admin", "pre-commit", "tox", "celery", "flock", "cd", "export", "exec", "exit",
    "kill", ".", ".ci/run",
}  # fmt: skip
"""Programs that are not ours, so that their options are their own affair."""


def lines_of(block):
    """Return the command lines of a block: joined where they go on, without prompts and comments."""
    if block.language == "yaml":
        yield from (" ".join(map(str, words)) for words in commands_in(yaml.safe_load(block.text)))
        return
    lines = block.text.replace("\\\n", " ").splitlines()
    prompts = [line for line in lines if line.startswith("$ ")]  # where there are some, the rest is answers
    for line in prompts or lines:
        yield line.strip().removeprefix("$ ")


def commands_in(tree):
    """Find the `command:` lists in a tree of YAML."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            if key == "command" and isinstance(value, list):
                yield value
            yield from commands_in(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from commands_in(value)


def managed(line):
    """Return the words after manage.py of each such command in a line."""
    for part in re.split(r"\|\||&&|;|\s\|\s", re.sub(r"\s#.*", "", line)):
        if "manage.py " in part and "(pid " not in part:
            yield shlex.split(part.partition("manage.py ")[2])


def parse(words):
    """Parse a command as manage.py would. Raises CommandError for what there is not."""
    verb, *rest = words
    if verb == "claims":
        command = Claims()
    elif verb in OUR_COMMANDS:  # of another project, so that only its source is looked at
        source = (ROOT / "example_project/reports/management/commands" / f"{verb}.py").read_text()
        known = Guarded().create_parser("manage.py", verb)._option_string_actions
        for option in (word.partition("=")[0] for word in rest if word.startswith("--")):
            if option not in known and f'"{option}"' not in source:
                raise CommandError(f"no {option}")
        return
    elif verb in MADE_UP:
        command = Guarded()
    else:
        command = load_command_class(get_commands()[verb], verb)
    parser = command.create_parser("manage.py", verb)
    parser.parse_args(rest)


@single_instance
class Guarded(BaseCommand):
    """Has the options of every guarded command."""


def test_the_command_lines_in_blocks_parse():
    seen = 0
    for page in PAGES:
        for block in blocks_of(page):
            if block.language not in SHELL or block.not_run:
                continue
            for line in lines_of(block):
                for words in managed(line):
                    seen += 1
                    try:
                        parse(words)
                    except (CommandError, KeyError, ImportError) as error:
                        pytest.fail(f"{block}: {' '.join(words)}: {error}")
    assert seen > 25


def test_the_command_lines_in_sentences_parse():
    seen = 0
    for page in PAGES:
        for code in re.findall(r"`((?:manage\.py )?claims [a-z][^`]*)`", prose(page)):
            words = shlex.split(code.replace("…", "").replace("NAME", "x").partition("claims ")[2].partition("||")[0])
            if "|" in words:
                assert set(words) - {"|"} <= set(VERBS), f"{page.name}: {code}"
            elif words[0] in VERBS:
                seen += 1
                assert_options_exist(words, f"{page.name}: {code}")
            else:
                assert words[0] in ("command", "on", "off"), f"{page.name}: {code}"
    assert seen > 15


def assert_options_exist(words, where):
    known = options_of(words[0])
    for word in words[1 : words.index("--") if "--" in words else None]:
        name = word.strip("[]").partition("=")[0]
        if name.startswith("--") and name != "--":
            assert name in known, f"{where}: no {name}"


def options_of(verb):
    parser = argparse.ArgumentParser()
    VERBS[verb].add_arguments(parser)
    return {option for action in parser._actions for option in action.option_strings} - {"-h", "--help"}


def test_the_page_of_the_claims_command_tells_each_verb_and_option():
    page = (ROOT / "docs" / "claims-command.md").read_text()
    for verb in VERBS:
        assert re.search(rf"^\| `{verb}[ `]", page, re.M), verb
        for option in options_of(verb):
            assert f"{option} " in page or f"{option}`" in page or f"{option}]" in page, f"{verb} {option}"


def test_the_page_of_commands_tells_each_argument_and_option():
    page = (ROOT / "docs" / "commands.md").read_text()
    parser = Guarded().create_parser("manage.py", "guarded")
    for option in (option for action in parser._actions for option in action.option_strings if "claim" in option):
        assert f"`{option}" in page, option


def test_other_programs_in_shell_blocks_are_known_and_extras_exist():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for page in PAGES:
        for block in blocks_of(page, "sh"):
            for line in lines_of(block):
                for part in re.split(r"&&|\|\|", re.sub(r"(^|\s)#.*", "", line)):
                    words = part.split()
                    if words and "manage.py" not in part:
                        program = words[0].removeprefix(".venv/bin/").removeprefix("../").removeprefix("venv/bin/")
                        assert program in OTHERS, f"{block}: {part}"
        for wanted in re.findall(r"(?:django-claims|'\.|\"\.)\[([\w,]+)\]", page.read_text()):
            assert set(wanted.split(",")) <= set(extras), f"{page.name}: [{wanted}]"


def test_celery_lines_name_options_and_schedulers_that_there_are():
    seen = 0
    for page in PAGES:
        for block in blocks_of(page):
            for line in lines_of(block) if block.language in ("sh", "") else ():
                if not re.match(r"(\S*/)?celery ", line):
                    continue
                words = shlex.split(line, comments=True)
                verb = next(word for word in words if word in celery.commands)
                known = {option for each in (celery, celery.commands[verb]) for p in each.params for option in p.opts}
                assert {word for word in words if word.startswith("-")} <= known, f"{block}: {line}"
                if "--scheduler" in words:
                    module, _, name = words[words.index("--scheduler") + 1].rpartition(".")
                    assert name in importlib.import_module(module).__all__
                seen += 1
    assert seen >= 4


def test_files_for_systemd_and_yaml_can_be_read():
    for page in PAGES:
        for block in blocks_of(page):
            if block.language == "ini":
                found = configparser.ConfigParser(interpolation=None, strict=True)
                found.optionxform = str
                found.read_string(block.text)
                assert found.sections()
            elif block.language == "yaml":
                assert yaml.safe_load(block.text)
