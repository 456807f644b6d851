#!/usr/bin/env python3
"""Prints what the binary is made of as SPDX 2.3 JSON: sbom.py BINARY VERSION [LIST [SYSROOT [NAME=VERSION...]]]. Libraries that it loads are
found by ldd; those that are compiled in (headers, the page's scripts) by deploy/packages.sh LIST. Names, versions and origins are dpkg's: of a
binary for another machine those of SYSROOT's list, and it loads glibc alone. NAME=VERSION is part of the binary and no Debian package."""
import hashlib
import json
import os
import re
import subprocess
import sys

ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), "../.."))
NAMESPACE = "https://quire.invalid/spdx"


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def loaded_packages(binary):
    """Packages of the shared libraries that the loader finds."""
    paths = re.findall(r"(/\S+) \(0x", output("ldd", binary))
    owners = set()
    for path in paths:
        # Since /usr is merged, dpkg may know either name of a file.
        for name in {path, os.path.realpath(path), re.sub(r"^/usr", "", os.path.realpath(path)), "/usr" + path}:
            found = subprocess.run(["dpkg-query", "-S", name], capture_output=True, text=True, check=False).stdout
            owners.update(line.split(": ")[0].split(":")[0] for line in found.splitlines() if not line.startswith("diversion"))
    return owners


def compiled_packages(which):
    return set(output(os.path.join(ROOT, "deploy/packages.sh"), which).split())


def describe(name, sysroot):
    """dpkg's fields of a package that is installed, in the sysroot before here; nothing for one that is not."""
    form = "${Package}\t${Version}\t${Architecture}\t${source:Package}\t${Maintainer}\t${Homepage}\n"
    for database in ([f"--admindir={sysroot}/var/lib/dpkg"], []) if sysroot else ([],):
        found = subprocess.run(["dpkg-query", *database, "-W", "-f", form, name], capture_output=True, text=True, check=False).stdout
        if found:
            return dict(zip(("name", "version", "arch", "source", "maintainer", "homepage"), found.splitlines()[0].split("\t")))
    return None


def identifier(name):
    return "SPDXRef-" + re.sub(r"[^A-Za-z0-9.-]", "-", name)


def package(fields):
    return {
        "SPDXID": identifier("Package-" + fields["name"]), "name": fields["name"], "versionInfo": fields["version"],
        "supplier": f"Person: {fields['maintainer']}" if fields["maintainer"] else "NOASSERTION",
        "downloadLocation": "NOASSERTION", "filesAnalyzed": False, "licenseConcluded": "NOASSERTION", "licenseDeclared": "NOASSERTION",
        "copyrightText": "NOASSERTION", "comment": f"licences: /usr/share/doc/{fields['name']}/copyright",
        **({"homepage": fields["homepage"]} if fields["homepage"] else {}),
        "externalRefs": [{
            "referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl",
            "referenceLocator": f"pkg:deb/debian/{fields['name']}@{fields['version'].replace('+', '%2B').replace(':', '%3A')}?arch={fields['arch']}",
        }],
    }


def foreign_package(name, version):
    """A part that is no Debian package."""
    return {
        "SPDXID": identifier("Package-" + name), "name": name, "versionInfo": version, "supplier": "NOASSERTION",
        "downloadLocation": "NOASSERTION", "filesAnalyzed": False, "licenseConcluded": "NOASSERTION", "licenseDeclared": "NOASSERTION",
        "copyrightText": "NOASSERTION", "comment": f"licences: licenses/{name}.txt of the archive",
    }


def main(binary, version, which="compiled-in", sysroot="", *others):
    with open(binary, "rb") as file:
        digest = hashlib.sha256(file.read()).hexdigest()
    parts = [(name, "DYNAMIC_LINK") for name in (["libc6"] if sysroot else sorted(loaded_packages(binary)))]
    parts += [(name, "STATIC_LINK") for name in sorted(compiled_packages(which))]
    described = [(describe(name, sysroot), kind) for name, kind in parts]
    missing = [name for (name, _), (fields, _) in zip(parts, described) if fields is None]
    if missing:
        sys.exit(f"not installed: {' '.join(missing)}")
    packages = [(package(fields), kind) for fields, kind in described]
    packages += [(foreign_package(*other.split("=")), "STATIC_LINK") for other in others]
    # The commit's time, so that the same tree gives the same document.
    created = output("git", "-C", ROOT, "log", "-1", "--date=format-local:%Y-%m-%dT%H:%M:%SZ", "--format=%cd").strip()
    quire = {
        "SPDXID": "SPDXRef-Package-quire", "name": "quire", "versionInfo": version, "supplier": "Organization: Quire",
        "downloadLocation": "NOASSERTION", "filesAnalyzed": False, "licenseConcluded": "Apache-2.0", "licenseDeclared": "Apache-2.0",
        "copyrightText": "NOASSERTION", "checksums": [{"algorithm": "SHA256", "checksumValue": digest}], "primaryPackagePurpose": "APPLICATION",
    }
    relations = [{"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES", "relatedSpdxElement": quire["SPDXID"]}]
    relations += [{"spdxElementId": quire["SPDXID"], "relationshipType": kind, "relatedSpdxElement": part["SPDXID"]} for part, kind in packages]
    print(json.dumps({
        "spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": f"quire-{version}",
        "documentNamespace": f"{NAMESPACE}/quire-{version}-{digest[:16]}",
        "creationInfo": {"created": created, "creators": ["Tool: quire deploy/release/sbom.py"]},
        "packages": [quire] + [part for part, _ in packages], "relationships": relations,
    }, indent=1))


main(*sys.argv[1:])
