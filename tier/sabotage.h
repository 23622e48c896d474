// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * sabotage.h - builds that break one invariant on purpose, so that the power-cut harness can prove
 * that it notices (tests/crash/sabotage.sh). `make SABOTAGE=I3` makes such a program, apart from
 * the real one and never installed; in any other build the constant below is 0 and nothing of it
 * remains. `hybridfs --version` says so.
 *
 *   I1  what a commit calls present is neither synced in the object nor put into the journal
 *   I2  clean blocks are overwritten without an intent
 *   I3  written-back blocks become clean without SRC being synced
 *   I4  space is released before the removal is committed
 *   I5  fsync does not wait for the journal's flush
 */
#ifndef HYBRIDFS_TIER_SABOTAGE_H
#define HYBRIDFS_TIER_SABOTAGE_H

#ifndef HFS_SABOTAGE
#define HFS_SABOTAGE 0
#endif

#define SABOTAGED(n) (HFS_SABOTAGE == (n))

#endif
