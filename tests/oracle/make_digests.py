#!/usr/bin/env python3
"""make_digests.py [ORACLE [STAGES]]
make_digests.py --more CASE FAMILY ARGUMENTS DUMP.json

The first writes vllm.tsv, and the tables of older releases, from dumps of what vLLM itself holds
(ORACLE/vllm, ORACLE/vllm@0.28.0, …; default ../shared/oracle). The second adds a case that dump.py made here to more.tsv.

Each of these has cases.tsv (case, family, gen.py arguments, layouts) and CASE.json, the L-state of every rank: each tensor's
dtype, shape and sha256 after vLLM's own loader and before post-processing. One line of vllm.tsv is one rank:

    case  family  arguments  layout  rank  count  sha256  uninitialised names

sha256 is over the lines "name dtype [d0,d1] sha256\\n", sorted. A tensor that the engine leaves uninitialised in part
has '-' for its sha256. A layout that the engine refuses has rank "error" and its words in place of the digest; one that
it could not judge (it crashed for a reason of its own) has rank "unjudged". SGLang's loader wants the state after
post-processing: sglang.tsv is of that.

Pipeline stages: the harness that made the dumps plays the stages without setting the group's global rank, so to vLLM
every stage looks like the first and none like the last: its stage 1 of a Llama holds embed_tokens and lacks norm and
lm_head. What is in the layers is right for each stage. Digests of pp layouts are over the tensors of layers only.
STAGES has dumps of pp layouts made by dump.py here, which sets that rank: stages.tsv is their digests, over all tensors.
"""
import hashlib
import json
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
# Directories of the engine's releases, and of their dumps.
RELEASES = {"vllm": "vllm", "vllm@0.28": "vllm@0.28.0", "vllm@0.24": "vllm@0.24.0", "vllm@0.20": "vllm@0.20.2", "sglang": "sglang"}

# Engines whose loader wants the state after post-processing; their dumps play pipeline stages as they are.
AFTER = {"sglang"}
# Cases that such a loader never gets, or that lose something in it, with the reason.
LOST = {"sglang": {
    "gpt-oss-20b": "Mxfp4MoEMethod takes the experts out of the state",
    "llama-3.1-8b-fp8-modelopt": "ModelOptModelLoader is taken, whatever --load-format says",
    "llama-3.1-8b-nvfp4-modelopt": "ModelOptModelLoader is taken, whatever --load-format says",
    "qwen2.5-7b-gptq-int4-desc-act": "g_idx_sort_indices is no part of the state: it is made of the empty model's g_idx",
}}
IN_LAYER = re.compile(r"(^|\.)(layers|h|layer)\.\d+\.")


def describe(name, tensor):
    """A tensor's line. `tensor` has dtype, shape, sha256 and, when part of it is uninitialised, uninit."""
    shape = ",".join(str(n) for n in tensor["shape"])
    return f"{name} {tensor['dtype']} [{shape}] {'-' if tensor.get('uninit') else tensor['sha256']}\n"


def judged(tensors, layout, engine="vllm"):
    """Those of a rank's tensors that a digest is over."""
    return {n: t for n, t in tensors.items() if "-pp" not in layout or engine in AFTER or IN_LAYER.search(n)}


def states(record, engine, case):
    """What a dump says the loader's ranks hold, by layout: {"error": why} where there are none."""
    if engine not in AFTER:
        return record["layouts"]
    layouts = {}
    for layout, ranks in record["after"].items():
        lost = LOST[engine].get(case) or ranks.get("error") or (not ranks and record["layouts"][layout])
        layouts[layout] = ranks if not lost else lost if isinstance(lost, dict) else {"error": lost}
    return layouts


def digest(tensors):
    return hashlib.sha256("".join(sorted(describe(n, t) for n, t in tensors.items())).encode()).hexdigest()


def lines(case, family, arguments, layouts, judged=judged):
    for layout, ranks in layouts.items():
        for verdict in ("error", "unjudged"):
            if verdict in ranks:
                why = " ".join(str(ranks[verdict]).split())[:160]
                yield case, family, arguments, layout, verdict, "0", why, ""
                break
        else:
            for rank, tensors in ranks.items():
                tensors = judged(tensors, layout)
                uninit = ",".join(n for n, t in tensors.items() if t.get("uninit"))
                yield case, family, arguments, layout, rank, str(len(tensors)), digest(tensors), uninit


def add_case(case, family, arguments, dump):
    record = json.loads(pathlib.Path(dump).read_text())
    table = HERE / "more.tsv"
    kept = [line for line in table.read_text().splitlines() if line.split("\t")[0] != case] if table.exists() else []
    made = ["\t".join(line) for line in lines(case, family, arguments, record["layouts"], lambda tensors, layout: tensors)]
    table.write_text("".join(line + "\n" for line in kept + made))


def main():
    if sys.argv[1:2] == ["--more"]:
        return add_case(*sys.argv[2:6])
    oracle = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else HERE.parents[2] / "shared/oracle"
    for engine, dumps in RELEASES.items():
        write(f"{engine}.tsv", oracle / dumps, oracle / dumps, judged)
    if len(sys.argv) > 2:
        write("stages.tsv", oracle / "vllm", pathlib.Path(sys.argv[2]), lambda tensors, layout, engine: tensors)


def write(name, oracle, dumps, judge):
    """The table `name` of the cases of `oracle` that have a dump."""
    with open(HERE / name, "w") as out:
        for row in (oracle / "cases.tsv").read_text().splitlines():
            if row.startswith("#"):
                continue
            case, family, arguments, _ = row.split("\t")
            if not (dumps / f"{case}.json").exists():
                continue
            record = json.loads((dumps / f"{case}.json").read_text())
            engine = oracle.name.split("@")[0]
            for line in lines(case, family, arguments, states(record, engine, case),
                              lambda tensors, layout: judge(tensors, layout, engine)):
                if dumps != oracle and line[4] in ("error", "unjudged"):
                    continue
                out.write("\t".join(line) + "\n")


if __name__ == "__main__":
    main()
