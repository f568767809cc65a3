#!/usr/bin/env python3
"""check.py [CASE…] - what rankfs serves to vLLM, against what vLLM itself holds (vllm.tsv, made by make_digests.py).

Older releases have a table each (vllm@0.28.tsv), of fewer cases and layouts; more.tsv has cases that dump.py made.

For every case: make its checkpoint (tests/zoo/gen.py, kept in build/zoo), then for every layout and rank compare names,
dtypes, shapes and bytes of all tensors, read four ways: `rankfs export`, `rankfs cat`, read(2) on a mount, mmap on a
mount. The safetensors files are parsed here, by the rules of the format and nothing else. A layout that the engine
refuses must be refused.

Of pipeline stages the table judges the layers alone (make_digests.py says why); stages.tsv and more.tsv have the digests of
whole stages, and together the stages must hold what the layout without stages does.

Python 3, standard library only. RANKFS is the binary; REQUIRE_SHARED=1 makes it an error that the dumps behind the
table are not in ../shared, which otherwise only makes a failure's report shorter.
"""
import collections
import errno
import hashlib
import json
import mmap
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile

from make_digests import RELEASES, describe, digest, judged, states

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
GEN = ROOT / "tests/zoo/gen.py"
TOKENIZER = HERE / "tokenizer.py"
DUMPS = ROOT.parent / "shared/oracle"
RANKFS = os.environ.get("RANKFS", str(ROOT / "build/release/rankfs"))
REFUSED = 32

# To add a case that needs options: a row, with what each command gets before SOURCE.
OPTIONS = {
    "mistral-7b-v0.3+consolidated": ["-o", "format=mistral"],
    "gpt-oss-20b+marlin": ["-o", "gpu=sm80"],
}

# Layouts that the dumps have although the engine refuses them: the harness told every kernel that it can do whatever it
# is asked, so a share of less than a group of columns was built, without any scale. rankfs must refuse them.
CUT_GROUPS = {
    ("qwen2.5-7b-instruct-awq", "tp4"), ("qwen2.5-7b-instruct-gptq-int4", "tp4"), ("qwen3-32b-awq", "tp4"),
    ("llama-2-7b-awq", "tp4"), ("qwen2.5-7b-instruct-awq+wide", "tp8"), ("qwen2.5-7b-instruct-gptq-int4+wide", "tp8"),
}

Rank = collections.namedtuple("Rank", "name count sha256 uninit")


class Failed(Exception):
    """A case that is wrong: the sentence says what."""


# ---------------------------------------------------------------- the table
def load_table(name):
    """{case: (family, arguments, {layout: [Rank]})}, in the table's order."""
    cases = {}
    for line in (HERE / name).read_text().splitlines():
        case, family, arguments, layout, rank, count, sha256, uninit = line.split("\t")
        layouts = cases.setdefault(case, (family, arguments, {}))[2]
        layouts.setdefault(layout, []).append(Rank(rank, int(count), sha256, set(filter(None, uninit.split(",")))))
    return cases


def checkpoint(family, arguments):
    """The generated directory of a case, made once: its name has the digest of all that it depends on."""
    makers = GEN.read_bytes() + (TOKENIZER.read_bytes() if "--tokenizer" in arguments else b"")
    key = hashlib.sha256(makers + f"{family} {arguments}".encode()).hexdigest()[:12]
    path = ROOT / "build/zoo" / f"{family}-{key}"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = tempfile.mkdtemp(prefix=".unfinished-", dir=path.parent)
        os.chmod(unfinished, 0o755)
        of_model, _, kind = arguments.partition(" --tokenizer ")
        subprocess.run([sys.executable, GEN, family, unfinished, *shlex.split(of_model), "--fill"], check=True,
                       stdout=subprocess.DEVNULL)
        if kind:
            subprocess.run([sys.executable, TOKENIZER, kind, unfinished], check=True)
        os.rename(unfinished, path)
    return path


# ---------------------------------------------------------------- safetensors, as plain as can be
def parse(data, where):
    """{name: {dtype, shape, sha256}} of a safetensors file's bytes."""
    n = int.from_bytes(data[:8], "little")
    header = json.loads(bytes(data[8:8 + n]), object_pairs_hook=unique)
    header.pop("__metadata__", None)
    end, tensors = 8 + n, {}
    for name, t in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        first, last = (8 + n + off for off in t["data_offsets"])
        if first != end:
            raise Failed(f"{where}: {name}: begins at byte {first}, the tensor before it ends at {end}")
        sha256 = hashlib.sha256(data[first:last]).hexdigest()
        tensors[name] = {"dtype": t["dtype"], "shape": t["shape"], "sha256": sha256}
        end = last
    if end != len(data):
        raise Failed(f"{where}: {len(data)} bytes, the tensors end at {end}")
    return tensors


def unique(pairs):
    if len({k for k, _ in pairs}) != len(pairs):
        raise Failed("a header has a key twice")
    return dict(pairs)


def part_key(name):
    """((stage, rank), part) of a file name of sharded_state, or None for another file."""
    m = re.fullmatch(r"model-(?:rank-(\d+)|pp-(\d+)-tp-(\d+))-part-(\d+)\.safetensors", name)
    return m and ((int(m[2] or 0), int(m[1] or m[3])), int(m[4]))


def rank_key(rank):
    """(stage, rank) of the table's "rank-1" or "pp-0-rank-1"."""
    m = re.fullmatch(r"(?:pp-(\d+)-)?rank-(\d+)", rank)
    return int(m[1] or 0), int(m[2])


def ranks_of(directory, read):
    """{(stage, rank): {name: tensor}} of all weight files in a layout's directory; `read` gives a file's tensors."""
    ranks = collections.defaultdict(dict)
    parts = collections.defaultdict(list)
    for name in sorted(os.listdir(directory)):
        if key := part_key(name):
            tensors = read(directory / name)
            if twice := tensors.keys() & ranks[key[0]].keys():
                raise Failed(f"{name}: {min(twice)} is in an earlier part too")
            ranks[key[0]].update(tensors)
            parts[key[0]].append(key[1])
    for key, numbers in parts.items():
        if sorted(numbers) != list(range(len(numbers))):
            raise Failed(f"{directory.name}: stage {key[0]} rank {key[1]}: parts {sorted(numbers)} are not 0, 1, 2, …")
    return ranks


# ---------------------------------------------------------------- the ways to read a file
def read_whole(path):
    return parse(path.read_bytes(), path.name)


def read_mapped(path):
    with open(path, "rb") as f, mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ) as data:
        return parse(data, path.name)


def rankfs(*arguments):
    return subprocess.run([RANKFS, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)


def said(done):
    return (done.stderr + done.stdout).decode(errors="replace").strip()


class Case:
    """One checkpoint for one release, its scratch directory, and a mount of it where the machine can mount."""

    def __init__(self, engine, name, family, arguments, layouts, scratch, can_mount, whole):
        self.engine = engine
        self.name = name
        self.never = all(ranks[0].name == "error" for ranks in layouts.values())  # the model may be refused as a whole
        self.whole = whole  # digests of pipeline stages are over all tensors
        self.source = checkpoint(family, arguments)
        self.options = OPTIONS.get(name, [])
        self.scratch = scratch
        self.mountpoint = scratch / "mnt" if can_mount else None
        self.plain = {}  # layout without stages: {(0, rank): tensors}, as exported

    def judged(self, tensors, layout):
        return tensors if self.whole else judged(tensors, layout, self.engine)

    def command(self, verb, *arguments):
        return rankfs(verb, *self.options, self.source, *arguments)

    def check(self):
        """False: it is refused, as the engine refuses it."""
        done = self.command("check")
        if done.returncode == REFUSED and self.never:
            return False
        if done.returncode:
            raise Failed(f"rankfs check: exit {done.returncode}: {said(done)}")
        return True

    def __enter__(self):
        if self.mountpoint:
            self.mountpoint.mkdir()
            done = rankfs(self.source, self.mountpoint, *self.options)
            if done.returncode:
                self.mountpoint.rmdir()
                raise Failed(f"mount: exit {done.returncode}: {said(done)}")
        return self

    def __exit__(self, *_):
        if self.mountpoint:
            subprocess.run(["fusermount3", "-u", self.mountpoint], check=True)
            self.mountpoint.rmdir()

    def refuses(self, layout):
        done = self.command("plan", f"{self.engine}/{layout}")
        if done.returncode != REFUSED:
            raise Failed(f"{layout}: rankfs plan: exit {done.returncode}, not {REFUSED}; the engine refuses it")
        if self.mountpoint:
            try:
                os.stat(self.mountpoint / self.engine / layout)
            except OSError as e:
                if e.errno != errno.EINVAL:
                    raise Failed(f"{layout}: {e.strerror} on the mount, instead of EINVAL") from e
            else:
                raise Failed(f"{layout}: refused by plan, there on the mount")

    def views(self, layout):
        """(way, ranks) for each way to read a layout."""
        exported = self.scratch / "export"
        done = self.command("export", f"{self.engine}/{layout}", exported)
        if done.returncode:
            raise Failed(f"{layout}: rankfs export: exit {done.returncode}: {said(done)}")
        yield "export", ranks_of(exported, read_whole)
        self.check_cat(layout, exported)
        shutil.rmtree(exported)
        if self.mountpoint:
            directory = self.mountpoint / self.engine / layout
            yield "read", ranks_of(directory, read_whole)
            yield "mmap", ranks_of(directory, read_mapped)

    def check_cat(self, layout, exported):
        """Every file but for the middle parts: of each rank's, the first and one of the others."""
        chosen = {}
        for name in sorted(os.listdir(exported)):
            key = part_key(name)
            chosen.setdefault((key[0], key[1] == 0) if key else name, name)
        for name in chosen.values():
            path = exported / name
            if path.is_file() and self.command("cat", f"{self.engine}/{layout}/{name}").stdout != path.read_bytes():
                raise Failed(f"{layout}: cat and export differ in {name}")


# ---------------------------------------------------------------- comparing
def check_layout(case, layout, table, stages):
    for way, ranks in case.views(layout):
        expected = {rank_key(r.name): r for r in table}
        if ranks.keys() != expected.keys():
            raise Failed(f"{layout} by {way}: ranks {sorted(ranks)}, expected {sorted(expected)}")
        for key, rank in expected.items():
            ours = {n: dict(t, uninit=n in rank.uninit) for n, t in case.judged(ranks[key], layout).items()}
            if len(ours) != rank.count or digest(ours) != rank.sha256:
                raise Failed(f"{layout} {rank.name} by {way}: {difference(case, layout, rank, ours)}")
        if way == "export":
            check_stages(case, layout, ranks)
            for rank in stages:
                whole = {n: dict(t, uninit=n in rank.uninit) for n, t in ranks[rank_key(rank.name)].items()}
                if digest(whole) != rank.sha256:
                    raise Failed(f"{layout} {rank.name}: the whole stage is not what the engine holds")


def check_stages(case, layout, ranks):
    """All stages together hold what one stage would: the same contents, though a tied head has a name in each."""
    plain = re.sub(r"-pp\d+", "", layout)
    if plain == layout:
        case.plain[layout] = ranks
        return
    for (_, rank), whole in case.plain.get(plain, {}).items():
        staged = set().union(*(contents(t) for (_, r), t in ranks.items() if r == rank))
        if staged != contents(whole):
            raise Failed(f"{layout}: rank {rank}: the stages together do not hold what {plain} does")


def contents(tensors):
    return {(t["dtype"], tuple(t["shape"]), t["sha256"]) for t in tensors.values()}


def difference(case, layout, rank, ours):
    """The first tensor that differs, from the dump behind the table."""
    try:
        record = json.loads((DUMPS / RELEASES[case.engine] / f"{case.name}.json").read_text())
        theirs = case.judged(states(record, case.engine, case.name)[layout][rank.name], layout)
    except OSError:
        return f"{len(ours)} tensors, digest {digest(ours)[:12]}; expected {rank.count}, {rank.sha256[:12]}"
    lines = [{n: describe(n, t).strip() for n, t in side.items()} for side in (ours, theirs)]
    wrong = sorted(n for n in ours.keys() | theirs.keys() if lines[0].get(n) != lines[1].get(n))
    if wrong:
        pair = [side.get(wrong[0], f"{wrong[0]}: not there") for side in lines]
        return f"{len(wrong)} tensors differ, the first:\n    ours    {pair[0]}\n    engine  {pair[1]}"
    return "equal to the dump, not to the table: make_digests.py has not been run since the dump changed"


def check_case(case, layouts, stages):
    """(passed, failed, skipped) layouts of a case; `stages` are the digests of whole stages."""
    passed = failed = skipped = 0
    for layout, ranks in layouts.items():
        try:
            if ranks[0].name == "unjudged":
                skipped += 1
                continue
            if ranks[0].name == "error" or (case.name, layout) in CUT_GROUPS:
                case.refuses(layout)
            else:
                check_layout(case, layout, ranks, stages.get(layout, []))
            passed += 1
        except (Failed, OSError, ValueError) as e:
            failed += 1
            print(f"FAIL {case.engine} {case.name} {e}", flush=True)
            shutil.rmtree(case.scratch / "export", ignore_errors=True)
    return passed, failed, skipped


def main():
    if not DUMPS.exists() and os.environ.get("REQUIRE_SHARED") == "1":
        sys.exit(f"{DUMPS} is not there")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # unmounts on the way out
    can_mount = os.access("/dev/fuse", os.R_OK | os.W_OK) and shutil.which("fusermount3") is not None
    if not can_mount:
        print("no /dev/fuse or no fusermount3: read and mmap on a mount are not compared")
    total = collections.Counter()
    stages = load_table("stages.tsv")
    tables = [(engine, f"{engine}.tsv") for engine in RELEASES] + [("vllm", "more.tsv")]
    for engine, file in tables:
        table = load_table(file)
        for name in sys.argv[1:] or table:
            if name not in table:
                continue
            family, arguments, layouts = table[name]
            title = f"{engine} {name}"
            with tempfile.TemporaryDirectory(prefix="rankfs-oracle-") as scratch:
                case = Case(engine, name, family, arguments, layouts, pathlib.Path(scratch), can_mount, file == "more.tsv")
                try:
                    if not case.check():
                        print(f"{title}: {len(layouts)} layouts refused with the model", flush=True)
                        total["passed"] += len(layouts)
                        continue
                    with case:
                        counts = check_case(case, layouts, stages.get(name, ("", "", {}))[2] if engine == "vllm" else {})
                except Failed as e:
                    print(f"FAIL {title}: {e}", flush=True)
                    counts = (0, len(layouts), 0)
                total.update(dict(zip(("passed", "failed", "skipped"), counts)))
                print(f"{title}: {counts[0]} layouts equal, {counts[1]} differ, {counts[2]} unjudged", flush=True)
    print(f"{total['passed']} passed, {total['failed']} failed, {total['skipped']} skipped")
    return 1 if total["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
