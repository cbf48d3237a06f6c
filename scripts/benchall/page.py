"""Replaces tables of a page, between `<!-- table: NAME -->` and `<!-- end -->`. All other text is written by hand and kept."""
import re

BLOCK = re.compile(r"<!-- table: ([a-z0-9-]+) -->\n(.*?)<!-- end -->", re.DOTALL)


def names(text):
    """Returns the names of the tables in a page."""
    return [found[1] for found in BLOCK.finditer(text)]


def check(text, known):
    """Returns a list of problems with the marks of a page; empty if there are none."""
    found = names(text)
    said = [f"no table is called {name}" for name in found if name not in known]
    said += [f"the page has no place for the table {name}" for name in known if name not in found]
    said += [f"the page has more than one place for {name}" for name in set(found) if found.count(name) > 1]
    opened = text.count("<!-- table:")
    if opened != len(found) or text.count("<!-- end -->") != opened:
        said.append("a table begins or ends that does not end or begin")
    return said


def fill(text, tables):
    """Returns the page with these tables. Tables without a result are kept."""
    def put(found):
        lines = tables.get(found[1])
        if lines is None:
            return found[0]
        return f"<!-- table: {found[1]} -->\n" + "\n".join(lines) + "\n<!-- end -->"
    return BLOCK.sub(put, text)
