"""Formats of figures."""
import statistics


def count(number):
    """Formats a count: 10,000."""
    return f"{int(number):,}"


def rate(value):
    """Formats a rate with three digits: 412 k."""
    if value is None:
        return "–"
    for unit, size in [("M", 1e6), ("k", 1e3)]:
        if value >= size:
            return f"{three(value / size)} {unit}"
    return three(value)


def three(value):
    """Formats a number with three digits."""
    if value is None:
        return "–"
    if value == 0:
        return "0"
    if abs(value) >= 99.95:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 9.995 else f"{value:.2f}"


def sure(ratio, write=three):
    """Formats a ratio of a report with its interval, or states that there is no significant difference."""
    if ratio is None:
        return "–"
    if ratio["interval"] is None:
        return f"{write(ratio['ratio'])} (one run)"
    low, high = map(write, ratio["interval"])
    if ratio["is_told_apart"]:
        return f"{write(ratio['ratio'])} ({low} to {high})"
    return f"no significant difference ({low} to {high}, {ratio['rounds']} runs)"


def more(ratio):
    """Formats a ratio as a difference: +2.1 %."""
    return sure(ratio, lambda value: f"{(value - 1) * 100:+.1f} %")


def percent(share):
    return f"{share * 100:.0f} %"


def spread(values):
    """Returns the distance of the extremes relative to the median."""
    middle = statistics.median(values)
    return percent((max(values) - min(values)) / middle) if middle else "–"


def times(ones, others, higher=True):
    """How many times `others` the medians of `ones` are, in words, with the extremes of the rounds. There are too few rounds for
    more than these."""
    if not ones or not others:
        return "–"
    pairs = [a / b if higher else b / a for a, b in zip(ones, others)]
    one, other = statistics.median(ones), statistics.median(others)
    middle = one / other if higher else other / one
    if len(pairs) == 1:
        return f"{three(middle)} (one run)"
    return f"{three(middle)} ({three(min(pairs))} to {three(max(pairs))})"


def mebibytes(size):
    return three(size / (1 << 20))


def table(columns, rows, left=1):
    """Formats a table in Markdown. The first `left` columns are text."""
    yield "| " + " | ".join(columns) + " |"
    yield "|" + "---|" * left + "--:|" * (len(columns) - left)
    for row in rows:
        yield "| " + " | ".join(map(str, row)) + " |"
