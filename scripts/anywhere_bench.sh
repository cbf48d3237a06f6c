# The parts of scripts/bench-anywhere, which sources this file.

# requests COUNTS: prints the total number.
requests() { python3 -c 'import json, sys; print(sum(n for kind, n in json.loads(sys.argv[1]).items() if kind.isupper()))' "$1"; }
now() { echo "${EPOCHREALTIME/,/.}"; }
# since START: prints the elapsed seconds.
since() { awk -v start="$1" -v end="$(now)" 'BEGIN { printf "%.2f\n", end - start }'; }
wait_mounted() {
    for _ in $(seq 300); do mountpoint -q "$1" && return; sleep 0.1; done
    fail "nothing is mounted at $1"
}

bench_changed() {
    "$program" build "$tree" "$place/one.img" --free 64M --force >/dev/null
    cp --sparse=always "$place/one.img" "$place/two.img"
    rm -rf "$place/more"
    mkdir "$place/more"
    head -c 2000000 /dev/urandom >"$place/more/random"
    seq 100000 >"$place/more/numbers"
    "$program" cp -r "$place/more" "$place/two.img:/more" >/dev/null
    echo "| chunks | first: puts | first: bytes | changed: puts | changed: bytes |"
    echo "|---|---|---|---|---|"
    for size in 64K 128K 256K; do
        counts >/dev/null
        "$program" publish "$place/one.img" "$url-$size" --name image --chunk-size $size >/dev/null
        first=$(counts)
        "$program" publish "$place/two.img" "$url-$size" --name image --chunk-size $size >/dev/null
        changed=$(counts)
        echo "| $size | $(value "$first" PUT) | $(value "$first" bytes_sent) | $(value "$changed" PUT) | $(value "$changed" bytes_sent) |"
    done
}

# machine NUMBER IMAGE [OPTIONS…]: lists all names and reads one file in fifty through a mount.
machine() {
    mkdir -p "$place/mnt.$1"
    "$program" mount -o ro "${@:3}" "$2" "$place/mnt.$1"
    (cd "$place/mnt.$1" && find . -type f >"$place/names.$1" &&
        awk 'NR % 50 == 0' "$place/names.$1" | xargs -d '\n' cat | wc -c >"$place/read.$1")
    "$program" unmount "$place/mnt.$1"
}

bench_fleet() {
    "$program" build "$tree" "$place/one.img" --free 64M --force >/dev/null
    direct "$program" publish "$place/one.img" "$url-fleet" --name image >/dev/null
    # Records the reads of a start once.
    direct machine recorded "$url-fleet/names/image" --record "$place/start"
    direct "$program" publish "$place/one.img" "$url-fleet" --name ordered --order "$place/start" >/dev/null
    python3 - "$place/start" <<'PYTHON'
import sys
parts = [tuple(map(int, line.split())) for line in open(sys.argv[1]) if not line.startswith("#")]
chunks = {chunk for start, length in parts for chunk in range(start >> 17, start + length + 131071 >> 17)}
print(f"A start touches {sum(length for _, length in parts)} bytes of the image, in {len(chunks)} chunks.")
PYTHON
    for name in image ordered; do
        echo "published as $name:"
        fleet_of "$url-fleet/names/$name"
    done
    echo "Each read $(cat "$place/read.1") bytes of files, of an image of $(stat -c %s "$place/one.img") bytes."
}

fleet_of() {
    local image=$1 all sum bytes
    echo "| machines | requests | bytes | seconds |"
    echo "|---|---|---|---|"
    for machines in 1 10; do
        counts >/dev/null
        local jobs=() start
        start=$(now)
        for number in $(seq "$machines"); do machine "$number" "$image" & jobs+=($!); done
        for job in "${jobs[@]}"; do wait "$job"; done
        all=$(counts)
        sum=$(requests "$all")
        bytes=$(value "$all" bytes_received)
        echo "| $machines | $sum | $bytes | $(since "$start") |"
    done
    for machines in 1000 100000; do echo "| $machines (computed) | $((sum * machines / 10)) | $((bytes * machines / 10)) | |"; done
}

# make_files [BYTES]: creates an archive of 100,000 incompressible files of 4 KB to BYTES more (72,000) in 1,100
# directories. Needs 5 GB of space.
make_files() {
    python3 - "${1:-72000}" <<'PYTHON'
import io, os, sys, tarfile
pool, made = os.urandom(1 << 20), set()
with tarfile.open(fileobj=sys.stdout.buffer, mode="w|", format=tarfile.GNU_FORMAT) as archive:
    for number in range(100_000):
        top = str(number // 1000)
        for folder in (top, f"{top}/{number // 91 % 11}"):
            if folder not in made:
                made.add(folder)
                entry = tarfile.TarInfo(folder)
                entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                archive.addfile(entry)
        start, length = number * 7919 % (len(pool) - 80_000), 4_000 + number * 104_729 % int(sys.argv[1])
        contents = number.to_bytes(8, "big") + pool[start : start + length]
        entry = tarfile.TarInfo(f"{folder}/file-{number}")
        entry.size = len(contents)
        archive.addfile(entry, io.BytesIO(contents))
PYTHON
}

bench_lazy() {
    local image cold off start all
    for fs in ext4 xfs; do
        make_files | "$program" build - "$place/large.img" --fs $fs --size 5G --force >/dev/null
        direct "$program" publish "$place/large.img" "$url-$fs" --name large >/dev/null
        image=$url-$fs/names/large
        mkdir -p "$place/mnt"
        counts >/dev/null
        start=$(now)
        "$program" mount -o ro "$image" "$place/mnt"
        cat "$place/mnt/77/6/file-77700" >/dev/null
        echo "$fs: mount and first cat: $(since "$start") s, $(counts)"
        "$program" unmount "$place/mnt"
        start=$(now)
        [[ $("$program" find "$image" / --type f | wc -l) == 100000 ]] || fail "find misses files"
        cold=$(since "$start")
        echo "$fs: find of 100,000 files, cold: $cold s, $(counts)"
        start=$(now)
        "$program" find "$image" / --type f --no-read-ahead | wc -l >/dev/null
        off=$(since "$start")
        echo "$fs: without reading ahead: $off s, $(counts); $(python3 -c "print(f'{$off / $cold:.1f}')") times"
        export DISKWRIGHT_CACHE=$place/cache
        "$program" extract "$image" - >/dev/null
        counts >/dev/null
        for what in "find $image / --type f" "find $place/large.img / --type f" "extract $image -" "extract $place/large.img -"; do
            for _ in 1 2 3; do
                start=$(now)
                # shellcheck disable=SC2086
                "$program" $what >/dev/null
                since "$start"
            done | sort -n | sed -n 2p | sed "s|^|$fs: warm cache, median of 3, $what: |"
        done
        echo "$fs: requests of six with the warm cache: $(counts)"
        unset DISKWRIGHT_CACHE
        rm -rf "$place/cache" "$place/large.img" "$place/store/bucket/images/fleet-$fs"
    done
}

# timed TITLE COMMAND…: runs a command twice with empty caches, and prints the times and the requests of the second run.
timed() {
    local title=$1 start first
    shift
    start=$(now)
    "$@" >/dev/null
    first=$(since "$start")
    counts >/dev/null
    start=$(now)
    "$@" >/dev/null
    echo "$title: $first s and $(since "$start") s, $(counts)"
}
# median COMMAND…: prints the median of five runs, in seconds.
median() {
    local start
    for _ in 1 2 3 4 5; do
        start=$(now)
        "$@" >/dev/null
        since "$start"
    done | sort -n | sed -n 3p
}
# tar_of_mount OPTION…: mounts, archives the whole tree with tar, and unmounts.
tar_of_mount() {
    "$program" mount -o ro "$@" "$place/mnt"
    tar -C "$place/mnt" -c . | cat >/dev/null
    "$program" unmount "$place/mnt"
}
bench_bundle() {
    local image=s3://bucket/hosted/large.img what fs
    mkdir -p "$place/mnt"
    for fs in ext4 xfs; do
        make_files 16000 | "$program" build - "$place/large.img" --fs $fs --size 1700M --force >/dev/null
        port=$server signed_object hosted/large.img -T "$place/large.img"
        direct "$program" bundle "$image" >/dev/null
        timed "$fs: first cat of a small file" "$program" cat "$image" /77/6/file-77700
        timed "$fs: find of 100,000 files, cold" "$program" find "$image" / --type f
        timed "$fs: extract of a hundredth, cold" "$program" extract "$image" - --path /7
        timed "$fs: extract, cold" "$program" extract "$image" -
        timed "$fs: tar of a mount, cold" tar_of_mount "$image"
        timed "$fs: the image by curl" signed_object hosted/large.img
        timed "$fs: the image by curl, in four parts" parts_of_image
        export DISKWRIGHT_CACHE=$place/cache
        "$program" extract "$image" - >/dev/null
        counts >/dev/null
        for what in "find IMAGE / --type f" "extract IMAGE -"; do
            # shellcheck disable=SC2086
            echo "$fs: $what, median of five: warm cache $(median "$program" ${what/IMAGE/$image}) s," \
                "local image $(median "$program" ${what/IMAGE/$place/large.img}) s"
        done
        echo "$fs: requests of ten with the warm cache: $(counts)"
        unset DISKWRIGHT_CACHE
        rm -rf "$place/cache" "$place/large.img" "$place/store/bucket/hosted"
    done
}
# parts_of_image: fetches four parts of the image at a time.
parts_of_image() {
    local bytes part
    bytes=$(stat -c %s "$place/large.img")
    for part in 0 1 2 3; do
        signed_object hosted/large.img -r "$((bytes * part / 4))-$((bytes * (part + 1) / 4 - 1))" >/dev/null &
    done
    wait_all
}

bench_volume() {
    for fs in ext4 xfs; do
        local volume=s3://bucket/volumes/$fs
        mkdir -p "$place/mnt"
        direct "$program" volume create "$volume" --fs $fs --size 100G
        "$program" mount --foreground "$volume" "$place/mnt" &
        local mount=$!
        wait_mounted "$place/mnt"
        echo "$fs: $(python3 scripts/anywhere_work.py "$place/mnt" "http://127.0.0.1:$proxy" "mount=$mount" "server=${pids[0]}" \
            "proxy=${pids[1]}")"
        "$program" unmount "$place/mnt"
        wait "$mount"
        "$program" mount --foreground "$volume" "$place/mnt" &
        mount=$!
        wait_mounted "$place/mnt"
        counts >/dev/null
        rate "$fs: sequential read of the same file after a new mount" cat "$place/mnt/large"
        echo "$fs: requests meanwhile: $(counts)"
        "$program" unmount "$place/mnt"
        wait "$mount"
        rm -rf "$place/store/bucket/volumes"
    done
    # Measures the rate of the server alone, with objects as large as those of the volume.
    head -c 16777216 /dev/urandom >"$place/object"
    rate "the server, one put of 16 MiB after the other" objects put 32 1
    rate "the server, four puts at a time" objects put 8 4
    rate "the server, one get of 16 MiB after the other" objects get 32 1
    rate "the server, four gets at a time" objects get 8 4
}
# rate TITLE COMMAND...: runs a command that transfers 512 MiB, and prints the rate.
rate() {
    local title=$1 start
    shift
    start=$(now)
    "$@" >/dev/null
    awk -v title="$title" -v start="$start" -v end="$(now)" \
        'BEGIN { printf "%s: %.0f MB/s\n", title, 512 * 1.048576 / (end - start) }'
}
# objects put|get COUNT PARALLEL: transfers COUNT objects in each of PARALLEL processes.
objects() {
    local direction=$1 count=$2 parallel=$3 job number
    for job in $(seq "$parallel"); do
        (for number in $(seq "$count"); do "${direction}_object" "$(((job - 1) * count + number))"; done) &
    done
    wait_all
}
wait_all() { for job in $(jobs -p); do [[ " ${pids[*]} " == *" $job "* ]] || wait "$job"; done; }
put_object() { signed "$1" -o /dev/null -T "$place/object"; }
get_object() { signed "$1"; }
signed() { signed_object "rate/$1" "${@:2}"; }
# signed_object KEY OPTION…
signed_object() {
    curl -fsS --aws-sigv4 aws:amz:us-east-1:s3 --user "$AWS_ACCESS_KEY_ID:$AWS_SECRET_ACCESS_KEY" \
        -H 'x-amz-content-sha256: UNSIGNED-PAYLOAD' "http://127.0.0.1:${port:-$proxy}/bucket/$1" "${@:2}"
}
