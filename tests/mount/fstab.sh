#!/bin/bash
# mount(8) and umount(8) with both type names, from the command line and from fstab, paths with spaces and commas.
own_namespace=yes
. "$(dirname "$0")/lib.sh"
command -v mount.fuse3 >/dev/null || skip "no mount.fuse3 (package fuse3)"
model llama-3.1-8b
mv "$source" "$work/a model, of mine"
mkdir "$work/a mount"
source="$work/a model, of mine"
mnt="$work/a mount"

# mount(8) looks for the helper in /sbin, and mount.fuse3 for the program: there they are, in this mount namespace.
cp -a "$(realpath /sbin)" "$work/sbin"
cp "$root/mount-helpers/mount.rankfs" "$work/sbin/"
ln -s "$RANKFS" "$work/sbin/rankfs"
mount --bind "$work/sbin" /sbin
unset RANKFS

check()
{
	grep -q "^$work/a.040model,.040of.040mine $work/a.040mount fuse.rankfs ro,nosuid,nodev" /proc/mounts ||
		fail "not mounted: $*: $(grep rankfs /proc/mounts)"
	cmp "$source/config.json" "$mnt/source/config.json"
	umount "$mnt"
	! grep -q "$work/a.040mount" /proc/mounts || fail "still mounted: $*"
}

for type in rankfs fuse.rankfs; do
	mount -t $type "$source" "$mnt"
	check -t $type
	mount -t $type -o defaults,nofail,_netdev,x-systemd.automount,noexec,tp=2 "$source" "$mnt"
	[ "$(ls "$mnt/vllm")" = tp2 ] || fail "$type: tp=2 was not passed on"
	check -t $type with options
	printf '%s\\040model,\\040of\\040mine %s\\040mount %s rw,noauto,user,engine=vllm,x-systemd.mount-timeout=60 0 0\n' \
		"$work/a" "$work/a" $type >"$work/fstab"
	mount -T "$work/fstab" "$mnt"
	[ ! -e "$mnt/hf" ] || fail "$type: engine=vllm was not passed on"
	check $type from fstab
	if mount -t $type -o tp=0 "$source" "$mnt" 2>"$work/err"; then fail "$type: tp=0 was taken"; fi
	grep -q 'from 1 to 1024' "$work/err" || fail "$type, tp=0: $(cat "$work/err")"
done
mount -f -t rankfs "$source" "$mnt"
! grep -q "$work/a.040mount" /proc/mounts || fail "mounted by -f"
