#!/usr/bin/env python3
"""twin.py - what recipes do, once more, in numpy only, from the formulas; compares with data/ bit for bit.

    python twin.py [-v] [DATADIR]      prints one line per transform; exit status 1 if anything differs
"""
import glob, json, os, struct, sys
import numpy as np
np.seterr(all="ignore")
f32, f16, u8, u16, u32, i32 = np.float32, np.float16, np.uint8, np.uint16, np.uint32, np.int32
NP = {"F64": "f8", "F32": "f4", "F16": "f2", "BF16": "u2", "I64": "i8", "I32": "i4", "I16": "i2", "I8": "i1", "U8": "u1", "BOOL": "u1", "U16": "u2", "U32": "u4",
      "F8_E4M3": "u1", "F8_E5M2": "u1", "F8_E8M0": "u1", "F8_E4M3FNUZ": "u1"}


def read(path):
    with open(path, "rb") as f:
        n = struct.unpack("<Q", f.read(8))[0]
        h = json.loads(f.read(n)); d = f.read()
    meta = h.pop("__metadata__", {})
    t, ty = {}, {}
    for k, e in h.items():
        a, b = e["data_offsets"]
        t[k] = np.frombuffer(d[a:b], NP[e["dtype"]]).reshape(e["shape"]); ty[k] = e["dtype"]
    return t, ty, meta


# ------------------------------------------------------------------ number formats
def e4m3_values():
    c = np.arange(256); e, m = (c >> 3) & 15, c & 7
    v = np.where(e == 0, m * 2.0**-9, (8 + m) * 2.0**(e - 10.0))
    v = np.where((c & 127) == 127, np.nan, v)
    return np.where(c & 128, -v, v).astype(f32)


def fnuz_values():
    c = np.arange(256); e, m = (c >> 3) & 15, c & 7
    v = np.where(e == 0, m * 2.0**-10, (8 + m) * 2.0**(e - 11.0))
    v = np.where(c & 128, -v, v); v[128] = np.nan
    return v.astype(f32)


E4M3, FNUZ = e4m3_values(), fnuz_values()


def e4m3(x):
    """nearest even; |x| must be <= 464; NaN -> 7F with the sign bit of x; -0 stays."""
    x = np.asarray(x, f32); s = (x.view(u32) >> 31 << 7).astype(u8); a = np.abs(x).astype(np.float64)
    step = np.exp2(np.maximum(np.floor(np.log2(np.where(a > 0, a, 1.0))), -6) - 3)
    q = np.rint(a / step) * step
    code = np.searchsorted(E4M3[:127].astype(np.float64), np.where(np.isnan(q), 0, q)).astype(u8)
    return np.where(np.isnan(x), 0x7F, code).astype(u8) | s


def e4m3fnuz(x):
    x = np.asarray(x, f32); s = (x.view(u32) >> 31 << 7).astype(u8); a = np.abs(x).astype(np.float64)
    step = np.exp2(np.maximum(np.floor(np.log2(np.where(a > 0, a, 1.0))), -7) - 3)
    q = np.rint(a / step) * step
    code = np.searchsorted(FNUZ[:128].astype(np.float64), q).astype(u8)
    return np.where(code == 0, 0, code | s).astype(u8)


def bf(x):
    """bf16 bits of a float32 array, nearest even"""
    b = np.asarray(x, f32).view(u32).astype(np.uint64)
    r = ((b + 0x7FFF + ((b >> 16) & 1)) >> 16).astype(u16)
    return np.where(np.isnan(x), 0x7FC0, r).astype(u16)


def unbf(b): return (b.astype(u32) << 16).view(f32)
def wide(x): return unbf(x) if x.dtype == u16 else x.astype(f32)      # bf16 bits, f16 or f32 -> f32
def narrow(x, d): return bf(x) if d == "bfloat16" else np.asarray(x, f32).astype(f16) if d == "float16" else np.asarray(x, f32)
def up(n, m): return -(-n // m) * m


# ------------------------------------------------------------------ FP8 per tensor
def static_quant(x, scale, top=448.0, enc=e4m3):
    inv = f32(1) / f32(scale)
    y = np.asarray(x, f32) * inv
    return enc(np.where(np.isnan(y), f32(top), np.clip(y, -f32(top), f32(top))))


def requant_part(w, s, S, val=E4M3, top=448.0, enc=e4m3, cpu=False):
    t = val[np.arange(256)].astype(f16).astype(f32)
    sc = f32(s) if cpu else f32(f16(s))
    dq = (t * sc).astype(f16).astype(f32)
    return static_quant(dq, S, top, enc)[w]                 # a table of 256 bytes per part


def tensor_strategy(i, p, cpu=False, fn=False):
    w, s = i["weight"], i["weight_scale"]
    if fn:
        w, s = np.where(w == 0x80, 0, w).astype(u8), s * f32(2)
    S = s.max()
    q = w.copy()
    if s.ndim and s[-1] > -448.0:
        r = 0
        for k, n in enumerate(p["logical_widths"]):
            if n:
                q[r:r + n] = requant_part(w[r:r + n], s[k], S, *((FNUZ, 224.0, e4m3fnuz) if fn else (E4M3, 448.0, e4m3)), cpu=cpu)
            r += n
    o = {"weight": q.T, "weight_scale": S}
    if "input_scale" in i:
        o["input_scale"] = (i["input_scale"] * f32(2 if fn else 1)).max()
    return o


def modelopt_tensor(i, p):
    s = i["weight_scale"]
    return {"weight": i["weight"].T, "weight_scale": s.max()} if (s == s[0]).all() else tensor_strategy(i, p)


def cutlass_pad(i, p):
    w, s = i["weight"], i["weight_scale"]
    N, K = w.shape
    q = np.zeros((up(N, 16), up(K, 16)), u8); q[:N, :K] = w
    return {"weight": q.T, "weight_scale": s}


def channel(i, p):
    o = {"weight": i["weight"].T, "weight_scale": i["weight_scale"]}
    if "input_scale" in i: o["input_scale"] = i["input_scale"].max()
    return o


def fnuz(i, p, case, ty):
    o = {"weight": np.where(i["weight"] == 0x80, 0, i["weight"]).astype(u8)}
    if ty["in.weight_scale"] == "F8_E8M0":
        o["weight_scale"] = np.minimum(i["weight_scale"].astype(int) + 1, 254).astype(u8)
    else:
        o["weight_scale"] = i["weight_scale"] * f32(2)
    if "input_scale" in i: o["input_scale"] = i["input_scale"] * f32(2)
    if case == "channel": o["weight"] = o["weight"].T
    return o


# ------------------------------------------------------------------ online
def amax(x, axis=None): return np.abs(wide(x)).max(axis=axis, keepdims=axis is not None)


def online_tensor(i, p):
    w = i["weight"]; s = amax(w).reshape(1) / f32(448)
    return {"weight": static_quant(wide(w), s[0]).T, "weight_scale": s}


def row_quant(w):
    s = np.maximum(amax(w, -1) / f32(448), f32(1) / f32(448 * 512))
    return e4m3(np.clip(wide(w) / s, f32(-448), f32(448))), s


def online_channel(i, p):
    q, s = row_quant(i["weight"]); return {"weight": q.T, "weight_scale": s}


def to_blocks(x, bm, bn):
    M, N = x.shape
    y = np.zeros((up(M, bm), up(N, bn)), x.dtype); y[:M, :N] = x
    return y.reshape(y.shape[0] // bm, bm, y.shape[1] // bn, bn)


def per_block(x, bs, ue8m0, product):
    """x float32; product: amax*fp32(1/448) (GPU) instead of amax/448"""
    v = to_blocks(x, *bs)
    a = np.maximum(np.abs(v).max((1, 3), keepdims=True), f32(1e-4))
    sf = a * f32(1 / 448) if product else a / f32(448)
    if ue8m0:
        sf = np.exp2(np.ceil(np.log2(sf.astype(np.float64)).astype(f32))).astype(f32)
    q = e4m3(v * (f32(1) / sf))
    return q.reshape(v.shape[0] * bs[0], -1)[:x.shape[0], :x.shape[1]], sf[:, 0, :, 0]


def online_block(i, p, product=True):
    q, s = per_block(wide(i["weight"]), p["block"], False, product)
    return {"weight": q, "weight_scale_inv": s}


def online_moe_tensor(i, p):
    o = {}
    for n in ("w13", "w2"):
        s = np.array([amax(w) for w in i[n]], f32) / f32(448)
        o[n] = np.stack([static_quant(wide(w), k) for w, k in zip(i[n], s)]); o[n + "_scale"] = s
    return o


def online_moe_channel(i, p):
    o = {}
    for n in ("w13", "w2"):
        r = [row_quant(w) for w in i[n]]
        o[n], o[n + "_scale"] = np.stack([x[0] for x in r]), np.stack([x[1] for x in r])
    return o


def online_mxfp8(i, p):
    w = wide(i["weight"]); M, K = w.shape; v = w.reshape(M, K // 32, 32)
    a = np.maximum(np.abs(v).max(-1), np.finfo(f32).tiny)
    b = np.clip(np.ceil(np.log2((a / f32(448)).astype(np.float64)).astype(f32)) + f32(127), 0, 254)
    return {"weight": e4m3(v / np.exp2((b - f32(127)).astype(np.float64)).astype(f32)[..., None]).reshape(M, K), "weight_scale": b.astype(u8)}


# ------------------------------------------------------------------ block
def spread(s, bm, bn, M, N): return s.repeat(bm, 0).repeat(bn, 1)[:M, :N]


def block_ue8m0(i, p):
    w = i["weight"]; x = E4M3[w] * spread(i["weight_scale_inv"], *p["block"], *w.shape)
    q, s = per_block(x, p["block"], True, False)
    q2, s2 = per_block(x, p["block"], True, True)
    assert (q == q2).all() and (s == s2).all()
    return {"weight": q, "weight_scale_inv": s}


def block_shape(i, p):
    rows = []
    for I, H, tp, be, ispp in i["query"].tolist():
        P, b, ref, pad = ispp, 128, 0, 0
        if not (ispp % 128 == 0 and (tp == 1 or ispp % 128 == 0)):
            g = int(np.gcd.reduce([128, ispp, H]))
            if be in (0, 1) and g >= 32:
                b, ref = g, 128 // g
            elif be != 0 and tp > 1:
                P, pad = up(ispp, 128), 1
        rows.append([P, b, b, ref, ref, pad, 0])
    return {"answer": np.array(rows, i32)}


def scale_refine(i, p):
    f, tp = p["refine"][0], p["tp"]
    a, b = i["w1_scale"].repeat(f, 0).repeat(f, 1), i["w2_scale"].repeat(f, 0).repeat(f, 1)
    n, m = a.shape[0] // tp, b.shape[1] // tp
    return {**{f"w1_rank{r}": a[r * n:(r + 1) * n] for r in range(tp)}, **{f"w2_rank{r}": b[:, r * m:(r + 1) * m] for r in range(tp)}}


def tp_padded(i, p):
    P, I, B, H, o = p["padded"], p["i"], p["block"], p["h"], {}
    for r in range(p["tp"]):
        for suf, Q, J, one, fill in (("", P, I, 1, 0), ("_scale", P // B, I // B, B, 1)):
            a, n = min(r * Q, J), min(Q, J - min(r * Q, J))
            x = np.full((2, Q, H // one), fill, i["w1" + suf].dtype)
            x[0, :n], x[1, :n] = i["w1" + suf][a:a + n], i["w3" + suf][a:a + n]
            y = np.full((H // one, Q), fill, x.dtype); y[:, :n] = i["w2" + suf][:, a:a + n]
            o[f"w13{suf}_rank{r}"], o[f"w2{suf}_rank{r}"] = x.reshape(2 * Q, -1), y
    return o


def deepgemm_sf(i, p):
    s, mn, g = i["scale"], p["mn"], p["gran_mn"]
    kb = s.shape[1]
    b = np.zeros((mn, up(kb, 4)), u32); b[:, :kb] = ((s.view(u32) >> 23) & 255)[np.arange(mn) // g]
    return {"scale": (b[:, 0::4] | b[:, 1::4] << 8 | b[:, 2::4] << 16 | b[:, 3::4] << 24).view(i32)}


# ------------------------------------------------------------------ Marlin
def repack(q, bits, a8=False):
    """q[K][N] unsigned values -> int32 [K/16][N*16*bits/32]; indices of the CUDA kernels"""
    K, N = q.shape
    tk, tn = (32, 32) if a8 else (16, 64)
    words = tk * tn * bits // 32
    q = q.astype(u32).reshape(K // tk, tk, N // tn, tn)
    out = np.zeros((K // tk, N // tn, words), u32)
    for w in range(4):
        for t in range(32):
            if a8:
                c, rows = (w // 2) * 16 + t // 4 + (w % 2) * 8, [(t % 4) * 4 + i for i in range(4)]
                v = [q[:, r, :, c] for r in rows] + [q[:, r + 16, :, c] for r in rows]
            else:
                c, rows = 16 * w + t // 4, [2 * (t % 4) + i for i in (0, 1, 8, 9)]
                v = [q[:, r, :, c] for r in rows] + [q[:, r, :, c + 8] for r in rows]
            if bits == 4:
                for i, k in enumerate((0, 4, 1, 5, 2, 6, 3, 7) if a8 else (0, 2, 4, 6, 1, 3, 5, 7)):
                    out[:, :, 4 * t + w] |= v[k] << u32(4 * i)
            else:
                for i, k in enumerate((0, 1, 2, 3) if a8 else (0, 2, 1, 3)):
                    out[:, :, 8 * t + 2 * w] |= v[k] << u32(8 * i)
                    out[:, :, 8 * t + 2 * w + 1] |= v[4 + k] << u32(8 * i)
    return out.reshape(K // 16, N * 16 * bits // 32).view(i32)


def unpack0(x, bits):        # packed along axis 0
    return np.stack([(x.view(u32) >> u32(bits * i)) & u32((1 << bits) - 1) for i in range(32 // bits)], 1).reshape(-1, x.shape[1])


def unpack1(x, bits): return unpack0(np.ascontiguousarray(x.T), bits).T


AWQ = {4: [0, 4, 1, 5, 2, 6, 3, 7], 8: [0, 2, 1, 3]}          # column c of a word sits in nibble/byte AWQ[c]
def unpack_awq(x, bits):
    n = 32 // bits
    return unpack1(x, bits).reshape(x.shape[0], -1, n)[:, :, AWQ[bits]].reshape(x.shape[0], -1)


def pack1(q, bits):
    n = 32 // bits; q = q.astype(u32); o = np.zeros((q.shape[0], q.shape[1] // n), u32)
    for i in range(n): o |= q[:, i::n] << u32(bits * i)
    return o.view(i32)


def pack0(q, bits): return np.ascontiguousarray(pack1(np.ascontiguousarray(q.T), bits).T)


P64 = np.array([i + 8 * j for i in range(8) for j in range(8)])
P32 = np.array([2 * i + j for i in range(4) for j in (0, 1, 8, 9, 16, 17, 24, 25)])
def perm(s, p): return s.reshape(-1, len(p))[:, p].reshape(s.shape)
def perm_scales(s, k, g): return perm(s, P64 if g != -1 and g < k else P32)


def zero_points(z, bits):
    z = perm(z, P64)
    il = [0, 2, 4, 6, 1, 3, 5, 7] if bits == 4 else [0, 2, 1, 3]
    return pack1(z.reshape(-1, len(il))[:, il].reshape(z.shape), bits)


def padded_nk(n, k, g):
    g = g if g > 0 else 1
    c = [(up(n, 64), up(k, int(np.lcm(128, g)))), (up(n, 128), up(k, int(np.lcm(64, g))))]
    return min(c, key=lambda x: (x[0] * x[1], x[0] + x[1]))


def pad2(x, r, c):
    y = np.zeros((r, c), x.dtype); y[:x.shape[0], :x.shape[1]] = x; return y


def pad_scales(s, K, N, PK, PN, g): return s if (PK, PN) == (K, N) else pad2(s, PK // g if g > 0 else s.shape[0], PN)


def marlin_int(q, s, z, bits, g, bias=None):
    """q[K][N], s[G][N], z[G][N] or None"""
    K, N = q.shape
    PN, PK = padded_nk(N, K, g)
    o = [repack(pad2(q, PK, PN), bits), perm_scales(pad_scales(s, K, N, PK, PN, g), PK, g)]
    o.append(None if z is None else zero_points(pad_scales(z, K, N, PK, PN, g), bits))
    o.append(None if bias is None else perm(pad2(bias[None], 1, PN)[0], P32))
    return o


def gptq(i, p):
    o = marlin_int(unpack0(i["qweight"], p["bits"]), i["scales"], None, p["bits"], p["group"], i["bias"])
    return {"qweight": o[0], "scales": o[1], "bias": o[3]}


def ct_wna16(i, p):
    b = p["bits"]
    o = marlin_int(unpack1(i["weight_packed"], b).T, i["weight_scale"].T, unpack0(i["weight_zero_point"], b).T if p["zp"] else None, b, p["group"])
    return {"weight_packed": o[0], "weight_scale": o[1], **({"weight_zero_point": o[2]} if p["zp"] else {})}


def awq(i, p):
    o = marlin_int(unpack_awq(i["qweight"], 4), i["scales"], unpack_awq(i["qzeros"], 4), 4, p["group"])
    return {"qweight": o[0], "scales": o[1], "qzeros": o[2]}


def awq_standard(i, p):
    return {"qweight": pack0(unpack_awq(i["qweight"], 4), 4), "qzeros": pack0(np.ascontiguousarray(unpack_awq(i["qzeros"], 4).T), 4)}


def halves(x, n, pn, axis):
    """pad each of two halves of length n along axis to pn"""
    x = np.moveaxis(x, axis, 0); y = np.zeros((2, pn) + x.shape[1:], x.dtype); y[:, :n] = x.reshape((2, n) + x.shape[1:])
    return np.ascontiguousarray(np.moveaxis(y.reshape((2 * pn,) + x.shape[1:]), 0, axis))


def moe_int(w13, w2, s13, s2, z13, z2, b13, b2, bits, I, H, g, k2_by_groups):
    """lists per expert, K-first: w[K][N] values, s[G][N], z[G][N]"""
    PI = up(I, int(np.lcm(64, g if g > 0 else 1)))
    o = {k: [] for k in ("w13", "w2", "w13_scale", "w2_scale", "w13_zp", "w2_zp")}
    for e in range(len(w13)):
        o["w13"].append(repack(halves(w13[e], I, PI, 1), bits)); o["w2"].append(repack(pad2(w2[e], PI, H), bits))
        a, b = halves(s13[e], I, PI, 1), (pad2(s2[e], PI // g, H) if g > 0 else s2[e])
        o["w13_scale"].append(perm(a, P64 if g != -1 and g < I else P32))
        o["w2_scale"].append(perm(b, P64 if g != -1 and g < (b.shape[0] * g if k2_by_groups else I) else P32))
        if z13 is not None:
            o["w13_zp"].append(zero_points(halves(z13[e], I, PI, 1), bits)); o["w2_zp"].append(zero_points(pad2(z2[e], PI // g, H) if g > 0 else z2[e], bits))
    o = {k: np.stack(v) for k, v in o.items() if v}
    if b13 is not None:
        o["w13_bias"], o["w2_bias"] = perm(halves(b13, I, PI, 1), P32), perm(b2, P32)
    return o


def moe_wna16(i, p):
    b, T = p["bits"], lambda x: [np.ascontiguousarray(y.T) for y in x]
    zp = p["zp"]
    return moe_int([unpack1(x, b).T for x in i["w13"]], [unpack1(x, b).T for x in i["w2"]], T(i["w13_scale"]), T(i["w2_scale"]),
                   [unpack0(x, b).T for x in i["w13_zp"]] if zp else None, [unpack0(x, b).T for x in i["w2_zp"]] if zp else None,
                   i["w13_bias"], i["w2_bias"], b, p["i"], p["h"], p["group"], True)


def moe_awq(i, p):
    A = lambda n: [unpack_awq(x, 4) for x in i[n]]
    return moe_int(A("w13"), A("w2"), i["w13_scale"], i["w2_scale"], A("w13_zp"), A("w2_zp"), None, None, 4, p["i"], p["h"], p["group"], False)


def fuse_bias(s, d):         # model dtype bits -> model dtype bits
    return narrow(wide(s) * f32(2.0**8 if d == "float16" else 2.0**120), d)


def fp8_marlin(i, p):
    w, s, d, blk = i["weight"], i["weight_scale"], p["dtype"], p["block"]
    N, K = w.shape; g = blk[1] if blk else -1
    PN, PK = padded_nk(N, K, g)
    s = narrow(s, d)
    if blk: s = s.T.repeat(blk[0], 1)[:, :N]
    elif s.size == 1: s = s.reshape(1, 1).repeat(N, 1)
    elif s.size == len(p["logical_widths"]): s = s.reshape(-1).repeat(p["logical_widths"])[None]
    elif s.size != N: s = s.reshape(1, -1).repeat(N // s.size, 1)
    else: s = s.reshape(1, N)
    s = fuse_bias(perm_scales(pad_scales(s, K, N, PK, PN, g), PK, g), d)
    return {"weight": repack(pad2(w.T, PK, PN), 8), "weight_scale": s, "bias": perm(pad2(i["bias"][None], 1, PN)[0], P32)}


def moe_fp8_marlin(i, p):
    I, H, d, blk = p["i"], p["h"], p["dtype"], p["block"]
    g = blk[1] if blk else -1; PI = up(I, int(np.lcm(64, g if g > 0 else 1))); E = p["experts"]
    o = {"w13": np.stack([repack(halves(x, I, PI, 0).T, 8) for x in i["w13"]]), "w2": np.stack([repack(pad2(x, H, PI).T, 8) for x in i["w2"]])}
    for n, N, K in (("w13", 2 * I, H), ("w2", H, I)):
        s = narrow(i[n + "_scale"], d)
        if blk: s = s.transpose(0, 2, 1).repeat(blk[0], 2)[:, :, :N]
        else: s = s.reshape(E, 1, -1).repeat(N * E // s.size, 2)
        if n == "w13": s = halves(s, I, PI, 2)
        elif blk: s = np.stack([pad2(x, PI // g, H) for x in s])
        o[n + "_scale"] = fuse_bias(perm_scales(s, PI if n == "w2" else K, g), d)
    return o


def swap4(s): return s.reshape(-1, 4)[:, [0, 2, 1, 3]].reshape(s.shape)


def e8m0_bytes(s, d):
    """what an E8M0 byte becomes through the model dtype and back"""
    if d == "bfloat16": return s
    r = s.copy().astype(int)
    r = np.where(s < 103, 0, np.where(s > 142, 255, r))       # fp16: 2^-24 .. 2^15; below 0 (byte 0), above infinity (byte 255)
    return r.astype(u8)


def mx_scales(s, K, N, PK, PN, d): return swap4(perm_scales(pad_scales(e8m0_bytes(s, d).T, K, N, PK, PN, 32), PK, 32))


def mxfp8_marlin(i, p):
    w = i["weight"]; N, K = w.shape; PN, PK = padded_nk(N, K, 32)
    return {"weight": repack(pad2(w.T, PK, PN), 8), "weight_scale": mx_scales(i["weight_scale"], K, N, PK, PN, p["dtype"])}


def moe_mxfp8_marlin(i, p):
    I, H = p["i"], p["h"]; PI = up(I, 64)
    return {"w13": np.stack([repack(halves(x, I, PI, 0).T, 8) for x in i["w13"]]), "w2": np.stack([repack(pad2(x, H, PI).T, 8) for x in i["w2"]]),
            "w13_scale": np.stack([swap4(perm_scales(halves(x, I, PI, 0).T, H, 32)) for x in i["w13_scale"]]),
            "w2_scale": np.stack([swap4(perm_scales(pad2(x, H, PI // 32).T, PI, 32)) for x in i["w2_scale"]])}


def nibbles(w): return np.stack([w & 15, w >> 4], -1).reshape(w.shape[0], -1)      # low nibble = even k


def nv_factor(s, d):
    v = s[s > 0]
    if d == "float16" or not len(v) or v.max() * 128 >= 448 * 128: return f32(1)
    return f32(2.0**np.floor(np.log2(448 / float(v.max()))))


def nv_scales(s, k, f):       # s float32 [K/16][N]
    h = (swap4(perm_scales(s, k, 16)) * f).astype(f16) * f16(128)
    h = np.where(h < 2, f16(0), h)
    return ((h.view(u16) >> 7) & 255).astype(u8)


def nv_global(g, d, f): return (g * f32(2.0**(7 if d == "float16" else 119))) / f


def nvfp4_marlin(i, p):
    w, d = i["weight"], p["dtype"]; N, K = p["n"], p["k"]; PN, PK = padded_nk(N, K, 16)
    s = pad_scales(E4M3[i["weight_scale"]].T, K, N, PK, PN, 16); f = nv_factor(s, d)
    return {"weight": repack(pad2(nibbles(w).T, PK, PN), 4), "weight_scale": nv_scales(s, PK, f), "weight_global_scale": nv_global(i["weight_global_scale"], d, f),
            "bias": perm(pad2(i["bias"][None], 1, PN)[0], P32)}


def mxfp4_marlin(i, p):
    N, K = p["n"], p["k"]; PN, PK = padded_nk(N, K, 32)
    o = {"weight_scale": mx_scales(i["weight_scale"], K, N, PK, PN, p["dtype"])}
    if "weight" in i: o["weight"] = repack(pad2(nibbles(i["weight"]).T, PK, PN), 4)
    return o


def moe_nvfp4_marlin(i, p):
    I, H, d = p["i"], p["h"], p["dtype"]; PI = up(I, 64 if H % 128 == 0 else 128); o = {}
    o["w13"] = np.stack([repack(nibbles(halves(x, I, PI, 0)).T, 4) for x in i["w13"]])
    o["w2"] = np.stack([repack(nibbles(pad2(x, H, PI // 2)).T, 4) for x in i["w2"]])
    for n, k in (("w13", H), ("w2", PI)):
        s = E4M3[i[n + "_scale"]]; f = nv_factor(s, d)
        s = [halves(x, I, PI, 0) if n == "w13" else pad2(x, H, PI // 16) for x in s]
        o[n + "_scale"] = np.stack([nv_scales(x.T, k, f) for x in s]); o[n + "_scale_2"] = nv_global(i[n + "_scale_2"], d, f)
    return o


def moe_mxfp4_marlin(i, p):
    o = {n: np.stack([repack(nibbles(x).T, 4) for x in i[n]]) for n in ("w13", "w2")}
    for n, k in (("w13", p["h"]), ("w2", p["i"])):
        o[n + "_scale"] = np.stack([swap4(perm_scales(x.T, k, 32)) for x in i[n + "_scale"]]); o[n + "_bias"] = perm(i[n + "_bias"], P32)
    return o


# ------------------------------------------------------------------ FP4 for native kernels
def swizzle(s):
    """[.., M, K] -> padded to 128 x 4, tile order: byte (m, k) at ((m/128 * K4 + k/4) * 32 + m%32) * 16 + (m/32%4) * 4 + k%4"""
    one = s.ndim == 2; s = s[None] if one else s
    B, M, K = s.shape; PM, PK = up(M, 128), up(K, 4)
    o = np.zeros((B, PM * PK), u8)
    m, k = np.meshgrid(np.arange(M), np.arange(K), indexing="ij")
    o[:, ((m // 128 * (PK // 4) + k // 4) * 32 + m % 32) * 16 + (m // 32 % 4) * 4 + k % 4] = s
    o = o.reshape(B, PM, PK)
    return o[0] if one else o


def global_ct(i, p):
    a, b = i["weight_global_scale"].max(), i["input_global_scale"].max()
    return {"weight_global_scale": f32(1) / a, "input_global_scale": f32(1) / b, "input_global_scale_inv": b, "alpha": (f32(1) / b) * (f32(1) / a)}


def global_mo(i, p):
    a, b = i["weight_scale_2"].max(), i["input_scale"].max()
    return {"weight_global_scale": a, "input_global_scale": b, "input_global_scale_inv": f32(1) / b, "alpha": b * a}


def nvfp4_pad(i, p):
    w, a = i["weight"], p["alignment"]; return {"weight": pad2(w, up(w.shape[0], a), up(w.shape[1] * 2, a) // 2)}


def w31(x): h = x.shape[-2] // 2; return np.concatenate([x[..., h:, :], x[..., :h, :]], -2)


def nvfp4_moe(i, p):
    o = {k: i[k] for k in ("w13_scale_2", "w2_scale_2", "w2")}
    E = len(i["w13"])
    if p["backend"] == "VLLM_CUTLASS":
        o["w13"], s = i["w13"], i["w13_scale"]
        o["a13_scale"], o["a2_scale"] = i["a13_scale"].max(1), i["a2_scale"]
    else:
        o["w13"], s = (i["w13"], i["w13_scale"]) if "BATCHED" in p["backend"] else (w31(i["w13"]), w31(i["w13_scale"]))
        o["a13_scale"], o["a2_scale"] = np.repeat(i["a13_scale"].max(), E), np.repeat(i["a2_scale"].max(), E)
    o["w13_scale"], o["w2_scale"] = swizzle(s), swizzle(i["w2_scale"])
    return o


def nvfp4_cutedsl(i, p):
    I, H = p["i"], p["h"]; PI, PH = up(I, 64), up(H, 256); E = len(i["w13"]); o = {}
    for suf, per in (("", 2), ("_scale", 16)):
        x = halves(w31(i["w13" + suf]), I, PI, 1)
        y = np.zeros((E, 2 * PI, PH // per), u8); y[:, :, :x.shape[2]] = x
        y = y.reshape(E, 2, PI // 64, 64, -1).transpose(0, 2, 1, 3, 4).reshape(E, 2 * PI, -1)
        z = np.zeros((E, PH, PI // per), u8); z[:, :H, :I // per] = i["w2" + suf]
        o["w13" + suf], o["w2" + suf] = (y, z) if not suf else (swizzle(y), swizzle(z))
    o["a13_scale"], o["a2_scale"] = np.repeat(i["a13_scale"].max(), E), np.repeat(i["a2_scale"].max(), E)
    return o


def gpt_oss(i, p):
    f = lambda x: np.concatenate([x[:, 1::2], x[:, ::2]], 1)
    return {"w13": f(i["w13"]), "w2": i["w2"], "w13_scale_before_interleave": f(i["w13_scale"]), "w2_scale_before_interleave": i["w2_scale"],
            "w13_bias": f(i["w13_bias"]), "w2_bias": i["w2_bias"]}


# ------------------------------------------------------------------ FlashInfer TRT-LLM
def tr_rows(M, b):           # row n of the result is row tr_rows[n] of the source; b = 32 (tile 128) or 16 (tile 64)
    n = np.arange(M); r = n % b
    return n - r + (b // 8) * (r % 8) + r // 8


def tr_gated(M): n = np.arange(M); return n // 2 + (n % 2) * (M // 2)


def kblocks(x, bytes_):      # [E, M, K] -> [E, K/blk, M, blk], blk = 128 bytes
    E, M, K = x.shape; b = bytes_ // x.dtype.itemsize
    return x.reshape(E, M, K // b, b).transpose(0, 2, 1, 3)


def trtllm_bf16(i, p):
    M = i["w13"].shape[1]
    r = (tr_gated(M)[tr_rows(M, 32)] + M // 2) % M
    return {"w13": kblocks(i["w13"][:, r], 128), "w2": kblocks(i["w2"][:, tr_rows(i["w2"].shape[1], 32)], 128)}


def trtllm_fp8(i, p):
    o = fi_cutlass(i, p)
    M, N = o["w13"].shape[1], o["w2"].shape[1]
    if p["block"]:
        o["w13"], o["w2"] = kblocks(o["w13"][:, tr_rows(M, 16)], 128), kblocks(o["w2"][:, tr_rows(N, 16)], 128)
    else:
        o["w13"], o["w2"] = o["w13"][:, tr_gated(M)[tr_rows(M, 32)]], o["w2"][:, tr_rows(N, 32)]
    return o


def trtllm_nvfp4(i, p):
    I, H = p["i"], p["h"]; PI, PH = up(I, 64), up(H, 256); E = len(i["w13"]); o = {}
    r13 = tr_gated(2 * PI)[tr_rows(2 * PI, 32)]; r2 = tr_rows(PH, 32)
    for suf, per in (("", 2), ("_scale", 16)):
        y = np.zeros((E, 2 * PI, PH // per), u8); y[:, :, :H // per] = halves(w31(i["w13" + suf]), I, PI, 1)
        z = np.zeros((E, PH, PI // per), u8); z[:, :H, :I // per] = i["w2" + suf]
        y, z = y[:, r13], z[:, r2]
        o["w13" + suf], o["w2" + suf] = (swizzle(y), swizzle(z)) if suf else (y, z)
    o["a13_scale"], o["a2_scale"] = np.repeat(i["a13_scale"].max(), E), np.repeat(i["a2_scale"].max(), E)
    return o


def trtllm_gpt_oss(i, p):
    r13 = tr_rows(2 * p["i"], 32) ^ 1; r2 = tr_rows(p["h"], 32)       # pairs of rows swapped first
    o = {"w13": i["w13"][:, r13], "w2": i["w2"][:, r2], "w13_scale": swizzle(i["w13_scale"][:, r13]), "w2_scale": swizzle(i["w2_scale"][:, r2])}
    o["w13_bias"], o["w2_bias"] = unbf(i["w13_bias"])[:, r13], unbf(i["w2_bias"])[:, r2]
    return o


# ------------------------------------------------------------------ MoE FP8, MLA, INT8
def moe_tensor(i, p):
    w, s = i["w13"].copy(), i["w13_scale"]; S = s.max(1)
    if p.get("gated", True):
        for e in range(len(w)):
            for h in range(2):
                a = slice(h * p["shard"], (h + 1) * p["shard"]); w[e, a] = requant_part(w[e, a], s[e, h], S[e])
    return {"w13": w, "w13_scale": S}


def fi_cutlass(i, p):
    I, H, blk = p["i"], p["h"], p["block"]; PI = I if blk else up(I, 16)
    o = {"w13": w31(halves(i["w13"], I, PI, 1)), "w2": np.stack([pad2(x, H, PI) for x in i["w2"]]), "w13_scale": i["w13_scale"], "w2_scale": i["w2_scale"]}
    if blk:
        o["w13_scale"], o["w2_scale"] = np.maximum(w31(i["w13_scale"]), f32(1e-10)), np.maximum(i["w2_scale"], f32(1e-10))
    return o


def mla(i, p):
    w, h, P, V, L, d = i["weight"], p["heads"], p["nope"], p["v"], p["rank"], p["dtype"]
    if w.dtype == u8:
        s = i.get("weight_scale", i.get("weight_scale_inv"))
        w = E4M3[w] * (s if s.ndim == 0 else spread(s, 128, 128, *w.shape))
        w = narrow(w, d)
    elif w.dtype == f32: w = narrow(w, d)
    w = w.reshape(h, P + V, L)
    return {"W_UV": w[:, P:].transpose(0, 2, 1), "W_UK_T": w[:, :P]}


def int8(i, p):
    w, s, lw = i["weight"], i["weight_scale"], p["logical_widths"]
    o = {"weight": w.T, "weight_scale": s.repeat(lw)[:, None] if len(lw) > 1 else s}
    if p["static"] and p["symmetric"]: o["input_scale"] = i["input_scale"].max()
    if p["static"] and not p["symmetric"]:
        z, a = i["input_zero_point"].astype(i32), i["input_scale"]
        hi, lo = (a * (127 - z).astype(f32)).max(), (a * (-128 - z).astype(f32)).min()
        o["input_scale"] = (hi - lo) / f32(255)
        o["input_zero_point"] = np.trunc(f32(-128) - lo / o["input_scale"]).astype(i32)
    if not p["symmetric"]:
        c = w.astype(i32).sum(1, dtype=i32)[None]
        o["azp_adj"] = c * o["input_zero_point"] if p["static"] else c
    return o


T = {
    "fp8_tensor": tensor_strategy, "fp8_tensor_cpu": lambda i, p: tensor_strategy(i, p, cpu=True), "fp8_tensor_modelopt": modelopt_tensor,
    "fp8_cutlass_pad": cutlass_pad, "fp8_channel": channel, "fp8_fnuz": fnuz, "fp8_fnuz_tensor": lambda i, p: tensor_strategy(i, p, fn=True),
    "online_tensor": online_tensor, "online_channel": online_channel, "online_block": online_block,
    "online_block_cpu": lambda i, p: online_block(i, p, False), "online_moe_tensor": online_moe_tensor, "online_moe_channel": online_moe_channel,
    "online_mxfp8": online_mxfp8, "block_ue8m0": block_ue8m0, "e8m0_to_f32": lambda i, p: {"scale": (i["scale"].astype(u32) << 23).view(f32)},
    "moe_block_shape": block_shape, "moe_scale_refine": scale_refine, "moe_tp_padded": tp_padded, "deepgemm_sf": deepgemm_sf,
    "marlin_repack_gptq": lambda i, p: {"qweight": repack(unpack0(i["qweight"], p["bits"]), p["bits"], p["a8"])},
    "marlin_repack_awq": lambda i, p: {"qweight": repack(unpack_awq(i["qweight"], p["bits"]), p["bits"], p["a8"])},
    "marlin_padded_nk": lambda i, p: {"answer": np.array([padded_nk(*r) for r in i["query"].tolist()], i32)},
    "marlin_gptq": gptq, "marlin_ct_wna16": ct_wna16, "marlin_awq": awq, "awq_to_standard": awq_standard, "marlin_moe_wna16": moe_wna16, "marlin_moe_awq": moe_awq,
    "marlin_fp8": fp8_marlin, "marlin_moe_fp8": moe_fp8_marlin, "marlin_mxfp8": mxfp8_marlin, "marlin_moe_mxfp8": moe_mxfp8_marlin,
    "marlin_nvfp4": nvfp4_marlin, "marlin_mxfp4": mxfp4_marlin, "marlin_mxfp4_scale": mxfp4_marlin, "marlin_moe_nvfp4": moe_nvfp4_marlin, "marlin_moe_mxfp4": moe_mxfp4_marlin,
    "nvfp4_global_ct": global_ct, "nvfp4_global_modelopt": global_mo, "swizzle_nvfp4": lambda i, p: {"scale": swizzle(i["scale"])},
    "swizzle_mxfp8": lambda i, p: {"scale": swizzle(i["scale"]).reshape(-1)}, "swizzle_mxfp4": lambda i, p: {"scale": swizzle(i["scale"]).reshape(-1)},
    "nvfp4_pad": nvfp4_pad, "nvfp4_moe": nvfp4_moe, "nvfp4_moe_cutedsl": nvfp4_cutedsl, "gpt_oss_fi_cutlass": gpt_oss,
    "trtllm_bf16": trtllm_bf16, "trtllm_fp8": trtllm_fp8, "trtllm_nvfp4": trtllm_nvfp4, "trtllm_gpt_oss": trtllm_gpt_oss,
    "moe_fp8_tensor": moe_tensor, "moe_fp8_input": lambda i, p: {k: v.max() for k, v in i.items()}, "moe_fp8_fi_cutlass": fi_cutlass,
    "moe_w31": lambda i, p: {"w13": w31(i["w13"])}, "mla": mla, "int8_w8a8": int8,
}


def main():
    args = [a for a in sys.argv[1:] if a != "-v"]
    root = args[0] if args else os.path.join(os.path.dirname(os.path.abspath(__file__)), "data")
    bad = cases = tensors = 0
    for d in sorted(os.listdir(root)):
        if d not in T:
            print(f"{d}: no twin"); bad += 1; continue
        n = ok = 0
        for path in sorted(glob.glob(f"{root}/{d}/*.safetensors")):
            case = os.path.basename(path)[:-12]
            t, ty, meta = read(path); p = json.loads(meta["params"]); strides = json.loads(meta["strides"])
            i = {k[3:]: v for k, v in t.items() if k.startswith("in.")}; want = {k[4:]: v for k, v in t.items() if k.startswith("out.")}
            n += 1
            try:
                got = T[d](i, p, case, ty) if T[d] is fnuz else T[d](i, p)
                msg = [] if set(got) == set(want) else [f"tensors {sorted(got)} != {sorted(want)}"]
                for k in want:
                    if k not in got: continue
                    g = np.ascontiguousarray(got[k]).reshape(np.shape(got[k])); w = want[k]; tensors += 1
                    if g.shape != w.shape or g.dtype.itemsize != w.dtype.itemsize: msg.append(f"{k}: {g.dtype}{g.shape} != {w.dtype}{w.shape}"); continue
                    if g.tobytes() != w.tobytes():
                        u = f"u{w.dtype.itemsize}"; x, y = np.frombuffer(g.tobytes(), u), np.frombuffer(w.tobytes(), u); z = np.flatnonzero(x != y)
                        msg.append(f"{k}: {len(z)} of {x.size} differ, first at {z[0]}: twin {x[z[0]]:#x}, vLLM {y[z[0]]:#x}")
            except Exception as e:
                msg = [f"{type(e).__name__}: {e}"]
                if "-v" in sys.argv: import traceback; traceback.print_exc()
            if msg: print(f"  {d}/{case}: " + "; ".join(msg))
            else: ok += 1
        print(f"{d}: {ok} of {n} equal"); bad += n - ok; cases += n
    print(f"{cases} cases, {tensors} output tensors, {bad} differ")
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
