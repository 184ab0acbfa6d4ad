"""Tests of tools/deny and tools/sbom, and of what a user compiles. Run by ./check: python3 tools/supply_chain_test.py"""

import importlib.machinery
import importlib.util
import json
import pathlib
import re
import subprocess
import tempfile
import tomllib
import unittest

TOOLS = pathlib.Path(__file__).resolve().parent


def load(name):
    loader = importlib.machinery.SourceFileLoader(name, str(TOOLS / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module


deny, sbom = load("deny"), load("sbom")
RULES = tomllib.loads((TOOLS.parent / "deny.toml").read_text())


def package(name="some", licence="MIT", source="registry+https://github.com/rust-lang/crates.io-index", **more):
    return {"id": name, "name": name, "version": "1.0.0", "license": licence, "source": source, "dependencies": [], **more}


def found(*packages, members=()):
    return list(deny.problems({"packages": list(packages), "workspace_members": list(members)}, RULES))


class Deny(unittest.TestCase):
    def test_expressions_are_read_as_spdx(self):
        allowed = {"MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "Unicode-3.0"}
        for expression, expected in [
            ("MIT", True),
            ("GPL-3.0-only", False),
            ("MIT/GPL-3.0-only", True),
            ("MIT AND GPL-3.0-only", False),
            ("GPL-3.0-only AND MIT OR Apache-2.0", True),
            ("GPL-3.0-only AND (MIT OR Apache-2.0)", False),
            ("(MIT OR Apache-2.0) AND Unicode-3.0", True),
            ("Apache-2.0 WITH LLVM-exception", True),
            ("MIT WITH LLVM-exception", False),
        ]:
            self.assertEqual(deny.is_allowed(expression, allowed), expected, expression)
        for wrong in ["MIT AND", "(MIT", "MIT MIT", ""]:
            self.assertRaises(ValueError, deny.is_allowed, wrong, allowed)

    def test_each_kind_of_problem_is_found(self):
        self.assertEqual(found(package()), [])
        self.assertIn("the licence AGPL-3.0-only is not allowed", found(package(licence="AGPL-3.0-only"))[0])
        self.assertIn("names no licence", found(package(licence=None))[0])
        self.assertIn("banned", found(package("openssl"))[0])
        self.assertIn("source git+https://example.com", found(package(source="git+https://example.com"))[0])
        self.assertIn("source a path", found(package(source=None))[0])
        self.assertEqual(found(package(source=None), members=["some"]), [])
        loose = package(source=None, dependencies=[{"name": "other", "req": "*"}])
        self.assertIn("has no version", found(loose, members=["some"])[0])


class Advisories(unittest.TestCase):
    def test_versions_fit_requirements_as_cargo_reads_them(self):
        for version, requirement, expected in [
            ("1.2.3", ">= 1.2.3", True),
            ("1.2.3-rc.1", ">= 1.2.3", False),
            ("1.10.0", "< 1.9", False),
            ("1.2.4", ">= 1.2.3, < 1.3", True),
            ("1.3.0", ">= 1.2.3, < 1.3", False),
            ("0.9.8", "^0.9.7", True),
            ("0.10.0", "^0.9.7", False),
            ("1.9.0", "^1.2", True),
            ("2.0.0", "^1.2", False),
            ("1.2.9", "~1.2.3", True),
            ("1.3.0", "~1.2.3", False),
            ("1.2.3+build", "= 1.2.3", True),
        ]:
            self.assertEqual(deny.fits(version, requirement), expected, f"{version} {requirement}")
        self.assertRaises(ValueError, deny.fits, "1.0.0", "latest")

    def test_a_vulnerable_version_is_found_and_a_patched_or_ignored_one_is_not(self):
        text = '```toml\n[advisory]\nid = "RUSTSEC-2099-0001"\npackage = "some"\n{more}[versions]\npatched = [{patched}]\n```\n# Text\n'
        with tempfile.TemporaryDirectory() as folder:
            database = pathlib.Path(folder)
            file = database / "crates" / "some" / "RUSTSEC-2099-0001.md"
            file.parent.mkdir(parents=True)

            def found(patched, more="", ignored=()):
                file.write_text(text.format(patched=patched, more=more))
                rules = {"advisories": {"ignore": list(ignored)}}
                return list(deny.advisories({"packages": [package(), package("other")]}, rules, database))

            self.assertIn("some 1.0.0: RUSTSEC-2099-0001", found('">= 1.0.1"')[0])
            self.assertEqual(len(found("")), 1)
            self.assertEqual(found('">= 1.0.0"'), [])
            self.assertEqual(found("", ignored=["RUSTSEC-2099-0001"]), [])
            self.assertEqual(found("", more='informational = "unmaintained"\n'), [])
            self.assertEqual(found("", more='withdrawn = "2099-01-02"\n'), [])


class Sbom(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        run = lambda: subprocess.run([TOOLS / "sbom"], check=True, capture_output=True, text=True).stdout
        cls.text, cls.again = run(), run()
        cls.bill = json.loads(cls.text)

    def test_the_same_sources_give_the_same_bytes(self):
        self.assertEqual(self.text, self.again)

    def test_it_names_what_is_linked_and_nothing_of_the_tests(self):
        names = {each["name"] for each in self.bill["components"]}
        self.assertLessEqual({"onceward", "onceward-http", "hyper", "rustls", "tokio", "blake3"}, names)
        self.assertFalse(names & {"proptest", "shuttle", "windows-sys"})
        self.assertEqual(self.bill["metadata"]["component"]["type"], "application")

    def test_every_crate_of_the_registry_has_its_checksum_and_every_reference_exists(self):
        references = {each["purl"] for each in self.bill["components"]}
        references.add(self.bill["metadata"]["component"]["purl"])
        for each in self.bill["components"]:
            self.assertTrue("hashes" in each or each["name"].startswith("onceward"), each["name"])
        self.assertEqual({each["ref"] for each in self.bill["dependencies"]}, references)
        for each in self.bill["dependencies"]:
            self.assertLessEqual(set(each["dependsOn"]), references)


def tree(*options):
    """What one package compiles, as `cargo tree` says: lines such as `bytes v1.11.0` or `hyper feature "client"`."""
    command = ["cargo", "tree", "--locked", "--prefix", "none", *options]
    lines = subprocess.run(command, cwd=TOOLS.parent, check=True, capture_output=True, text=True).stdout.splitlines()
    return {line.partition(" (")[0] for line in lines if line}


def features(of, *options):
    """The features with which a package compiles one of its dependencies."""
    lines = tree("--edges", "normal,features", *options)
    return {line.split('"')[1] for line in lines if line.startswith(f"{of} feature ")}


def names(*options):
    return {line.split()[0] for line in tree("--edges", "normal", *options)}


class Weight(unittest.TestCase):
    """What a user compiles for one crate of ours. A bound leaves three crates of slack: more need a decision."""

    def assert_light(self, bound, without, *options):
        found = names(*options)
        self.assertLessEqual(len(found), bound, f"{options}: {sorted(found)}")
        self.assertFalse(found & set(without), options)

    def test_the_core_is_small(self):
        without = {"axum", "http", "hyper", "serde", "serde_json", "syn", "tower"}
        self.assert_light(22, without, "--package", "onceward")

    def test_a_store_of_ones_own_is_tested_without_servers_and_command_lines(self):
        without = {"axum", "clap", "h2", "hyper", "rustls", "serde_json", "onceward-http", "onceward-stores"}
        self.assert_light(28, without, "--package", "onceward-verify")

    def test_the_client_has_no_server_and_no_store(self):
        without = {"axum", "clap", "fjall", "h2", "onceward-flows", "onceward-stores", "onceward-verify"}
        self.assert_light(117, without, "--package", "onceward-client")
        self.assertNotIn("rustls", names("--package", "onceward-client", "--no-default-features"))
        hyper = features("hyper", "--package", "onceward-client")
        self.assertTrue("client" in hyper and "server" not in hyper, hyper)

    def test_the_layer_has_no_server_and_no_store(self):
        without = {"axum", "hyper", "onceward-stores", "reqwest", "rustls", "utoipa"}
        self.assert_light(56, without, "--package", "onceward-http")

    def test_the_binary_leaves_out_what_is_heavy_and_what_is_for_tests(self):
        heavy = {"aws-sdk-dynamodb", "rdkafka", "rdkafka-sys", "async-nats", "lapin", "rabbitmq-stream-client", "opentelemetry"}
        self.assertFalse(names("--package", "onceward-cli") & heavy)
        self.assertLessEqual({"aws-sdk-dynamodb", "rdkafka"}, names("--package", "onceward-cli", "--features", "full"))
        self.assertEqual(features("onceward-verify", "--package", "onceward-cli") - {"default"}, {"endpoint", "tls"})
        stores = features("onceward-stores", "--package", "onceward-cli")
        self.assertTrue("embedded" in stores and not stores & {"etcd", "dynamodb"}, stores)

    def test_the_page_of_the_binary_says_how_many_crates_it_compiles(self):
        page = (TOOLS.parent / "crates/onceward-cli/README.md").read_text()
        said = int(re.search(r"compiles (\d+) crates", page)[1])
        found = len(tree("--edges", "normal,build", "--package", "onceward-cli"))
        self.assertAlmostEqual(said, found, delta=10)


if __name__ == "__main__":
    unittest.main()
