#!/bin/sh
# seeds_of_today.sh ALLOT_SIM PART|new: a thousand of today's quarter of the 16,000 seeds (PART 0 to 3), or
# 4,000 seeds beyond those, others each day.
day=$(($(date +%s) / 86400))
case $2 in
  new) first=$((16000 + day * 4000)) count=4000 ;;
  *) first=$((day % 4 * 4000 + $2 * 1000)) count=1000 ;;
esac
echo "allot-sim --seeds $first $count"
exec "$1" --seeds $first $count
