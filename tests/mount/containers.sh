#!/bin/bash
# Containers around tensors say where these are without reading them: opening a zip archive of 18 GiB and asking it for its
# directory reads the source's headers' worth, since the checksums of tensors are left out; those of everything else are right.
. "$(dirname "$0")/lib.sh"
"$PYTHON" "$root/tests/zoo/gen.py" llama-3.1-70b "$source" >/dev/null || skip "no sparse files here"
serve_rankfs -o stage=off

rchar()
{
	awk '/^rchar/ { print $2 }' "/proc/$pid/io"
}

before=$(rchar)
"$PYTHON" - "$mnt/meta/mp8/consolidated.07.pth" <<-END
	import sys
	import zipfile
	with zipfile.ZipFile(sys.argv[1]) as archive:
	    entries = archive.infolist()
	    data = [e for e in entries if "/data/" in e.filename]
	    assert len(data) == 723 == len(entries) - 3, len(data)
	    assert max(e.header_offset for e in data) > 2 ** 34 and sum(e.file_size for e in data) > 2 ** 34
	    assert all(e.CRC == 0 and e.compress_type == zipfile.ZIP_STORED for e in data)
	    # Read with their checksums compared.
	    assert archive.read("consolidated/version") == b"3\n"
	    assert archive.read("consolidated/byteorder") == b"little"
	    assert archive.read("consolidated/data.pkl").count(b"_rebuild_tensor_v2") == 723
END
read=$(($(rchar) - before))
[ "$read" -lt 64000000 ] || fail "$read bytes of the source were read for a directory"
