# Sourced at the root of the project: starts a server with a bucket on the loopback, behind a proxy that adds 20 ms to each
# request and counts requests. DISKWRIGHT_ANYWHERE_SERVER is light (s3s-fs, the default), production (versitygw) or moto.
# Sets `kind` (light, production or moto), `place` (a directory that is removed at the end), `url` and `proxy`, and the
# environment of clients. `counts` prints the counts since its last call.

kind=${DISKWRIGHT_ANYWHERE_SERVER:-light}
place=$(mktemp -d)
# The first process is the server.
pids=()
clean_up() {
    # Files below a mount must not be removed with the directory.
    awk -v top="$place/" 'index($2, top) == 1 { print $2 }' /proc/self/mounts | while read -r point; do
        fusermount3 -uz "$point" 2>/dev/null || umount -l "$point"
    done
    ((${#pids[@]})) && kill "${pids[@]}" 2>/dev/null
    rm -rf --one-file-system "$place"
}
trap clean_up EXIT
fail() { echo "${0##*/}: $*" >&2; exit 1; }

free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
# wait_for PORT: waits until a server answers there.
wait_for() {
    for _ in $(seq 100); do
        if (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; then return; fi
        sleep 0.1
    done
    fail "nothing answers on port $1"
}
server=$(free_port)
proxy=$(free_port)
mkdir -p "$place/store/bucket"
export AWS_ACCESS_KEY_ID=of-the-test AWS_SECRET_ACCESS_KEY=of-the-test-too AWS_REGION=us-east-1
export AWS_ENDPOINT=http://127.0.0.1:$proxy AWS_ALLOW_HTTP=true
servers=target/tools/servers/bin
start_server() {
    case $kind in
        light)
            $servers/s3s-fs --host 127.0.0.1 --port "$server" --access-key "$AWS_ACCESS_KEY_ID" \
                --secret-key "$AWS_SECRET_ACCESS_KEY" "$place/store" >>"$place/server.log" 2>&1 &
            ;;
        production)
            $servers/versitygw --access "$AWS_ACCESS_KEY_ID" --secret "$AWS_SECRET_ACCESS_KEY" --region "$AWS_REGION" \
                --port "127.0.0.1:$server" posix "$place/store" >>"$place/server.log" 2>&1 &
            ;;
        moto) $servers/moto_server -H 127.0.0.1 -p "$server" >>"$place/server.log" 2>&1 & ;;
        *) fail "no server is called $kind: there are light, production and moto" ;;
    esac
    pids[0]=$!
    wait_for "$server"
}
start_server
python3 scripts/delay_proxy.py "$proxy" "$server" 0.02 >"$place/proxy.log" 2>&1 &
pids+=($!)
wait_for "$proxy"
# moto accepts every signature.
as_moto_client() {
    curl -fsS -H "Authorization: AWS4-HMAC-SHA256 Credential=$AWS_ACCESS_KEY_ID/20260101/us-east-1/s3/aws4_request" \
        "http://127.0.0.1:$server/$1" "${@:2}"
}
[[ $kind != moto ]] || as_moto_client bucket -X PUT >/dev/null

counts() { curl -fsS "http://127.0.0.1:$proxy/__counts"; }
# direct COMMAND…: runs it without the proxy, for steps that are not measured.
direct() { AWS_ENDPOINT=http://127.0.0.1:$server "$@"; }
# stored PREFIX: prints name and size of each object below PREFIX.
stored() {
    if [[ $kind != moto ]]; then
        find "$place/store/bucket/$1" -type f -printf '%p %s\n' 2>/dev/null | sort || true
        return
    fi
    as_moto_client "bucket?list-type=2&max-keys=1000000&prefix=$1/" | python3 -c '
import sys, xml.etree.ElementTree as tree
page = tree.parse(sys.stdin).getroot()
name = page.tag.partition("}")[0] + "}"
for found in page.iter(name + "Contents"):
    print(found.findtext(name + "Key"), found.findtext(name + "Size"))' | sort
}
# value JSON KEY
value() { python3 -c 'import json, sys; print(json.loads(sys.argv[1]).get(sys.argv[2], 0))' "$1" "$2"; }
url=s3://bucket/images/fleet

