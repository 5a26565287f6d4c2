"""Times of a timing cache that a test sets, so that no measured time decides what the test sees."""
import re

LINE = re.compile(r"^(\S+ t\d+ +)[0-9.]+( us +)(?:disturbed@\d+ )?(\S.*)$", re.M)


def set_times(cache, *rows, other=10):
    """Every time becomes that of the first of `rows`, (pattern, microseconds), whose pattern the region's key has, or `other`. Microseconds may be a
    function of the key. Returns the entries without their times."""
    entries = set()

    def by_table(line):
        key = line[3].partition(" | ")[2]
        time = next((t for pattern, t in rows if re.search(pattern, key)), other)
        entries.add(line[1] + line[3])
        return f"{line[1]}{time(key) if callable(time) else time:.2f}{line[2]}{line[3]}"

    cache.write_text(LINE.sub(by_table, cache.read_text()))
    return entries


def priced(octavo, arguments, cache, *rows, other=10):
    """Runs the command with this cache until it asks for no other time than before, all set by `rows`. Returns its arguments with the cache, --strict-timing
    among them."""
    seen = None
    for _ in range(8):
        octavo(*arguments, "--timing-cache", cache)
        entries = set_times(cache, *rows, other=other)
        if entries == seen:
            return [*arguments, "--timing-cache", cache, "--strict-timing"]
        seen = entries
    raise AssertionError(f"{arguments} asks for further times in each of 8 runs")
