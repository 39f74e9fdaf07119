"""Finds the references between the top-level modules of a crate, and their cycles.

Reads `use` declarations and paths that begin with `crate::` or reach the crate's root by `super::`. A name that the
root re-exports counts as its module's. Tests may use any module, so `#[cfg(test)]` items do not count.
"""

import re

TEST_ITEM = re.compile(
    r"#\[cfg\((?:all\()?test[^\]]*\]\s*(?:#\[[^\]]*\]\s*)*(?:pub(?:\([^)]*\))?\s+)?"
    r"(mod|fn|impl|use|struct|const|static)\b"
)
# What may hold any text: comments, raw strings, strings, characters.
TEXT = re.compile(
    r"""//[^\n]*|/\*.*?\*/|\br(#*)".*?"\1|"(?:\\.|[^"\\])*"|'(?:\\.[^']*|[^'\\])'""", re.S
)
VISIBILITY = r"(?:pub(?:\([^)]*\))?\s+)?"


def module_graph(root):
    """For each top-level module of the crate with this root file the modules that it names, with examples."""
    src = root.parent
    text = code_of(root)
    modules = set(re.findall(rf"(?m)^\s*{VISIBILITY}mod\s+(\w+)\s*;", text))
    exported = {}
    for declaration in re.findall(r"\bpub(?:\([^)]*\))?\s+use\s+([^;]+);", text):
        for path in expand(declaration):
            names = [name for name in path.split("::") if name not in ("crate", "self")]
            if names and names[0] in modules:
                exported[names[-1]] = names[0]
    graph = {}
    for module in sorted(modules):
        edges = graph.setdefault(module, {})
        single, folder = src / f"{module}.rs", src / module
        files = [single] if single.exists() else []
        files += sorted(folder.rglob("*.rs")) if folder.is_dir() else []
        for file in files:
            parts = list(file.relative_to(src).with_suffix("").parts)
            if "tests" in parts:
                continue
            depth = len(parts) - (parts[-1] == "mod")
            for path in paths_of(code_of(file)):
                name = root_name(path, depth)
                target = name if name in modules else exported.get(name)
                if target and target != module:
                    edges.setdefault(target, f"{file.relative_to(src)}: {path}")
    return graph


def circles(graph):
    """The strongly connected components of more than one module (Tarjan's algorithm)."""
    index, low, stack, found = {}, {}, [], []

    def visit(module):
        index[module] = low[module] = len(index)
        stack.append(module)
        for other in graph[module]:
            if other not in index:
                visit(other)
                low[module] = min(low[module], low[other])
            elif other in stack:
                low[module] = min(low[module], index[other])
        if low[module] == index[module]:
            at = stack.index(module)
            component = stack[at:]
            del stack[at:]
            if len(component) > 1:
                found.append(frozenset(component))

    for module in graph:
        if module not in index:
            visit(module)
    return found


def code_of(file):
    """The text without comments, strings and tests."""
    text = TEXT.sub(lambda match: "" if match[0].startswith("/") else '""', file.read_text())
    out, at = [], 0
    while match := TEST_ITEM.search(text, at):
        out.append(text[at : match.start()])
        at = end_of_item(text, match.end(), match.group(1))
    return "".join(out) + text[at:]


def end_of_item(text, at, keyword):
    """Behind the `;` or the closing brace of the item that goes on at `at`."""
    ends = ";" if keyword == "use" else "{;"
    while at < len(text) and text[at] not in ends:
        at += 1
    depth = 0
    while at < len(text) and text[at] != ";" or depth > 0:
        depth += {"{": 1, "}": -1}.get(text[at : at + 1], 0)
        if depth == 0 and text[at] == "}" or at >= len(text):
            break
        at += 1
    return at + 1


def paths_of(text):
    """All paths that may begin at the crate's root."""
    declaration = rf"\b{VISIBILITY}use\s+([^;]+);"
    paths = [path for tree in re.findall(declaration, text) for path in expand(tree)]
    rest = re.sub(declaration, "", text)
    return paths + re.findall(r"\b((?:crate|super)(?:::\w+)+)", rest)


def root_name(path, depth):
    """The name in the crate's root that a path of a file so deep leads to; `None` if it leads elsewhere."""
    names = path.split("::")
    ups = 0
    while names[ups : ups + 1] == ["super"]:
        ups += 1
    begins = names[0] == "crate" or 0 < depth <= ups
    rest = names[max(ups, 1) :]
    return rest[0] if begins and rest else None


def expand(tree):
    """The paths of a use tree: `a::{b, c::d}` is `a::b` and `a::c::d`."""
    tree = tree.strip()
    match = re.match(r"^([\w:\s]*?)\{(.*)\}$", tree, re.S)
    if not match:
        return [re.sub(r"\s", "", re.sub(r"\s+as\s+\w+$", "", tree))]
    prefix, body = re.sub(r"\s", "", match.group(1)), match.group(2)
    parts, depth = [""], 0
    for char in body:
        depth += {"{": 1, "}": -1}.get(char, 0)
        if char == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    return [prefix + path for part in parts if part.strip() for path in expand(part)]
