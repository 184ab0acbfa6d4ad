"""Tests of tools/plain-words. Run by ./check: python3 tools/plain_words_test.py"""

import importlib.machinery
import importlib.util
import os
import tempfile
import unittest

PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "plain-words")
LOADER = importlib.machinery.SourceFileLoader("plain_words", PATH)
TOOL = importlib.util.module_from_spec(importlib.util.spec_from_loader("plain_words", LOADER))
LOADER.exec_module(TOOL)


def found(text, name="page.md", prose=(), names=()):
    """The numbers of the lines that are hits."""
    entries = [TOOL.compiled(entry, True) for entry in prose] + [TOOL.compiled(entry, False) for entry in names]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return [hit[1] for hit in TOOL.hits_in(path, entries)]


class PlainWords(unittest.TestCase):
    def test_a_word_is_found_in_prose_snake_case_and_camel_case(self):
        entry = [("all", "door|doors", "entry point")]
        text = "A Door.\nindoors\nopen_door()\nFlaw::DoorIsOpen\nadorable\nclosedDoors\n"
        self.assertEqual(found(text, prose=entry), [1, 3, 4, 6])

    def test_a_phrase_is_found_over_two_lines_also_of_a_comment(self):
        entry = [("all", "so many", "the number of")]
        self.assertEqual(found("so\nmany\n", prose=entry), [1])
        self.assertEqual(found("x\n    /// so\n    /// many\n", prose=entry), [2])
        self.assertEqual(found("so_many\nso, many\nso\n\nmany\n", prose=entry), [1])

    def test_a_line_can_be_right_all_the_same(self):
        entry = [("all", "lies", "is stored", "[Rr]e-?lies")]
        self.assertEqual(found("it re-lies\nit lies\n", prose=entry), [2])

    def test_names_are_compared_with_case_and_as_a_whole(self):
        entry = [("all", r"ran\(\)|(struct|enum) Trip", "into_result()")]
        self.assertEqual(found("ran()\nstruct Trip;\nstruct Triple;\nbran()\nRAN()\n", names=entry), [1, 2])

    def test_scopes_limit_where_a_word_is_looked_for(self):
        self.assertEqual(found("owed", "page.rs", prose=[("md", "owed", "must be released")]), [])
        self.assertEqual(found("owed", "page.md", prose=[("md", "owed", "must be released")]), [1])

    def test_every_language_of_the_project_is_read(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in [("script", "#!/bin/sh"), ("a.py", ""), ("a.sql", ""), ("a.lua", ""), ("a.rs", "")]:
                path = os.path.join(folder, name)
                with open(path, "w", encoding="utf-8") as file:
                    file.write(text)
                self.assertTrue(TOOL.is_read(path), name)
            plain = os.path.join(folder, "LICENSE")
            with open(plain, "w", encoding="utf-8") as file:
                file.write("text")
            self.assertFalse(TOOL.is_read(plain))


if __name__ == "__main__":
    unittest.main()
