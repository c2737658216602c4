#!/bin/sh
# One step of a rollout that stops when devices fail: look at the ring that has begun, and only then sign the next one.
# Run it by a schedule, such as once an hour. It changes nothing where devices fail, or where too few have reported.
# Devices that get another version count as those that get another workflow; next-ring shows both before it signs.
#
# PLAN       the signed plan in force, where devices fetch it (it is replaced)
# KEY        the private key of `idv fleet keygen`
# INVENTORY  every device, with labels
# SOURCES    where reports come from: --prometheus URL, --from DIRECTORY, or --service
set -eu

: "${PLAN:=published.json}" "${KEY:=fleet.key}" "${INVENTORY:=devices.csv}" "${SOURCES:=--service}"
: "${FAIL_ABOVE:=2%}" "${MIN_REPORTED:=95%}" "${RINGS:=1,10,50,100}" "${GRACE_SECONDS:=600}" "${IDV:=idv}"

# shellcheck disable=SC2086 # SOURCES holds several words.
$IDV fleet status --plan "$PLAN" --inventory "$INVENTORY" $SOURCES \
	--published "$(date -u -r "$PLAN" +%Y-%m-%dT%H:%M:%SZ)" --grace-seconds "$GRACE_SECONDS" \
	--fail-above "$FAIL_ABOVE" --min-reported "$MIN_REPORTED"

next=$PLAN.next
rm -f "$next"
$IDV fleet next-ring "$PLAN" --rings "$RINGS" --inventory "$INVENTORY" --key "$KEY" --out "$next"
# Without a further ring nothing is written. The rename is what devices see: a whole plan, old or new.
if [ -e "$next" ]; then mv "$next" "$PLAN"; fi
