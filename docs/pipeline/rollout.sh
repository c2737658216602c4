#!/bin/sh
# One step of a rollout that stops when devices fail: look at the ring that has begun, and only then sign the next one.
# Run it by a schedule, such as once an hour. It changes nothing where devices fail, or where too few have reported.
# Devices that get another version count as those that get another workflow; next-ring shows both before it signs.
#
# PLAN       the signed plan in force, where devices fetch it: a file or an https address (it is replaced); its record lies beside it:
#            a rollout that is under way does not go on without that
# KEY        the private key of `idv fleet keygen`
# INVENTORY  every device, with labels
# SOURCES    where reports come from: --prometheus URL, --from DIRECTORY, or --service
# ALLOW_MISSING  how many devices are known to be away: silent ones count up to that neither as failed nor as not reported
# MAX_MOVES  the share of the inventory that one ring may move
# INVENTORY and MAX_MOVES may be left to fleet-checks.json beside the plan.
set -eu

: "${PLAN:=published.json}" "${KEY:=fleet.key}" "${SOURCES:=--service}"
: "${FAIL_ABOVE:=2%}" "${MIN_REPORTED:=95%}" "${RINGS:=1,10,50,100}" "${GRACE_SECONDS:=600}" "${IDV:=idv}"

# When the plan was published is in its record; a plan without one is as old as its file.
record=${PLAN%.json}.record.json
published=
if [ -e "$PLAN" ] && ! [ -e "$record" ]; then published="--published $(date -u -r "$PLAN" +%Y-%m-%dT%H:%M:%SZ)"; fi

# shellcheck disable=SC2086 # SOURCES holds several words.
$IDV fleet status --plan "$PLAN" ${INVENTORY:+--inventory "$INVENTORY"} $SOURCES $published --record \
	--grace-seconds "$GRACE_SECONDS" --fail-above "$FAIL_ABOVE" --min-reported "$MIN_REPORTED" ${ALLOW_MISSING:+--allow-missing "$ALLOW_MISSING"}

# Without a further ring, or after idv fleet pause, nothing is written, and a line says why. Devices see a whole plan, old or new.
$IDV fleet next-ring "$PLAN" --rings "$RINGS" ${INVENTORY:+--inventory "$INVENTORY"} ${MAX_MOVES:+--max-moves "$MAX_MOVES"} --key "$KEY" --out "$PLAN"
