#!/bin/bash
# Weights that are truncated or written to in place: an errno, the size stays, one line in the log, and the daemon lives.
. "$(dirname "$0")/lib.sh"
model llama-3.1-8b
serve_rankfs
shard=$source/model-00002-of-00004.safetensors
ls -l "$mnt/source" >/dev/null # sizes are told before

# errno FILE: what reading it fails with.
errno()
{
	"$PYTHON" - "$1" <<'END'
import errno, sys
try:
    open(sys.argv[1], "rb").read()
    print("none")
except OSError as error:
    print(errno.errorcode[error.errno])
END
}

truncate -s 5000 "$shard"
for file in $(find "$mnt/vllm/tp2" -name '*.safetensors'); do
	size=$(stat -c %s "$file")
	case $(errno "$file") in
	EIO | ESTALE) bad=$file ;;
	none) ;;
	*) fail "$file: $(errno "$file")" ;;
	esac
	[ "$(stat -c %s "$file")" -eq "$size" ] || fail "$file has shrunk"
done
test -n "${bad:-}" || fail "no file noticed that $shard is gone"
case $(errno "$mnt/source/${shard##*/}") in
EIO | ESTALE) ;;
*) fail "source/${shard##*/}: $(errno "$mnt/source/${shard##*/}")" ;;
esac
for _ in 1 2 3; do errno "$bad" >/dev/null; done
[ "$(grep -c "${bad#"$mnt/"}" "$work/log")" -eq 1 ] || fail "not one line for ${bad#"$mnt/"}: $(cat "$work/log")"

printf x | dd of="$source/model-00004-of-00004.safetensors" bs=1 seek=20000 conv=notrunc status=none
sleep 0.1
[ "$(errno "$mnt/source/model-00004-of-00004.safetensors")" = ESTALE ] || fail "a write in place was not noticed"
[ "$(errno "$mnt/source/model-00001-of-00004.safetensors")" = none ] || fail "the others are not served any more"
grep -q '^failed with E' "$mnt/.rankfs/status" || fail "status does not count the errors"
kill -0 "$pid" || fail "the daemon has died"
