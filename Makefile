# SPDX-License-Identifier: GPL-2.0-or-later
#
# `make` leaves ./hybridfs; `make help` lists the rest. Objects live under build/VARIANT, so that
# gcc, clang and sanitizer builds stand side by side; a change of compiler or flags rebuilds.
#
#   make V=1               show the commands
#   make CC=clang          another compiler (objects in build/clang)
#   make O='-O0 -g3'       extra compiler options
#   make WERROR=1          warnings are errors
#   make VARIANT=asan ...  gcc, clang, strict (gcc -Werror), asan, tsan, cov, fuzz, points
#   make SABOTAGE=I1       build/sabotage-I1/hybridfs breaks an invariant: tests/crash/sabotage.sh
#   make CRASHPOINTS=1     the same as VARIANT=points: the daemon can be made to die at a named place

VERSION := 0.1.0

PREFIX ?= /usr/local
DESTDIR ?=
SBINDIR ?= /sbin

.DEFAULT_GOAL := all
.DELETE_ON_ERROR:
.SUFFIXES:
MAKEFLAGS += --no-print-directory --no-builtin-rules

# ---- what is built how ------------------------------------------------------------------------

# Sabotaged programs stay where nobody takes them for the real one.
ifneq ($(SABOTAGE),)
ifeq ($(filter I1 I2 I3 I4 I5,$(SABOTAGE)),)
$(error SABOTAGE is one of I1 I2 I3 I4 I5)
endif
ifneq ($(filter-out all,$(MAKECMDGOALS)),)
$(error SABOTAGE= builds build/sabotage-$(SABOTAGE)/hybridfs and nothing else)
endif
override VARIANT := sabotage-$(SABOTAGE)
override CPPFLAGS += -DHFS_SABOTAGE=$(SABOTAGE:I%=%)
endif
ifneq ($(filter-out 0,$(CRASHPOINTS)),)
VARIANT := points
endif
ifeq ($(origin CC),default)
CC := $(if $(filter clang fuzz,$(VARIANT)),clang,gcc)
VARIANT ?= gcc
else
VARIANT ?= $(notdir $(lastword $(CC)))
endif
B := build/$(VARIANT)
# Test programs of the ordinary build are build/unit/..., those of another build/VARIANT/unit/...
T := $(if $(filter gcc,$(VARIANT)),build,$(B))

CFLAGS ?= -O2 -g
warnings := -Wall -Wextra -Wshadow -Wvla -Wstrict-prototypes -Wmissing-prototypes -Wformat=2 \
	-Wundef -Wwrite-strings
hardening := -fPIE -fstack-protector-strong
fortify := $(if $(findstring -O0,$(CFLAGS) $(O)),,-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2)

variant_asan := -O1 -fsanitize=address,undefined -fno-omit-frame-pointer
variant_tsan := -O1 -fsanitize=thread -fno-omit-frame-pointer
variant_fuzz := -O1 -fsanitize=address,undefined,fuzzer-no-link -fno-omit-frame-pointer
variant_cov := -O0 --coverage -fprofile-update=atomic
variant_strict := -Werror
variant_points := -Werror -DHFS_CRASH_POINTS
ifneq ($(filter asan tsan cov fuzz,$(VARIANT)),)
fortify := -U_FORTIFY_SOURCE
endif

is_clang = $(findstring clang,$(shell $(CC) --version 2>/dev/null))

base_cppflags = -I. -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 $(fortify) $(CPPFLAGS)
base_cflags = -std=gnu17 $(CFLAGS) $(warnings) $(if $(is_clang),-Wthread-safety) $(hardening) \
	-pthread $(variant_$(VARIANT)) $(if $(filter-out 0,$(WERROR)),-Werror) $(O)
base_ldflags = -pie -Wl,-z,relro,-z,now -Wl,--as-needed $(LDFLAGS)
all_cppflags := $(base_cppflags)
# Evaluated once, when the first recipe needs it: `make help` must not need a compiler.
all_cflags = $(eval all_cflags := $$(base_cflags))$(all_cflags)

# $(call pkg,OPTION,MODULE,NAME,PACKAGE): what pkg-config says, or which package to install.
pkg = $(if $(shell command -v pkg-config 2>/dev/null),,$(error hybridfs needs pkg-config: \
	apt-get install pkg-config$(newline)$(pkg_hint)))$(if $(filter \
	0,$(shell pkg-config --exists $2; echo $$?)),$(shell pkg-config $1 $2),$(error hybridfs needs \
	$3: apt-get install $4$(newline)$(pkg_hint)))
pkg_hint := (contrib/setup.sh build installs all that is missing)
define newline


endef

once = $(eval $1 := $$(call pkg,$2,$3,$4,$5))$($1)
sqlite_cflags = $(call once,sqlite_cflags,--cflags,sqlite3,libsqlite3,libsqlite3-dev)
sqlite_libs = $(call once,sqlite_libs,--libs,sqlite3,libsqlite3,libsqlite3-dev)
xxhash_cflags = $(call once,xxhash_cflags,--cflags,libxxhash,libxxhash,libxxhash-dev)
xxhash_libs = $(call once,xxhash_libs,--libs,libxxhash,libxxhash,libxxhash-dev)
fuse_cflags = $(call once,fuse_cflags,--cflags,fuse3,libfuse3,libfuse3-dev)
fuse_libs = $(call once,fuse_libs,--libs,fuse3,libfuse3,libfuse3-dev)
json_cflags = $(call once,json_cflags,--cflags,json-c,json-c,libjson-c-dev)
json_libs = $(call once,json_libs,--libs,json-c,json-c,libjson-c-dev)
optional_pkgs := ncursesw libcap
optional_cflags = $(shell for p in $(optional_pkgs); do pkg-config --cflags-only-I $$p; done 2>/dev/null)
optional_libs = $(shell for p in $(optional_pkgs); do pkg-config --libs $$p; done 2>/dev/null)

fs_cppflags = -DFUSE_USE_VERSION=312 $(fuse_cflags) $(json_cflags) $(optional_cflags)
core_libs = $(sqlite_libs) $(xxhash_libs)
fs_libs = $(fuse_libs) $(json_libs) $(optional_libs)

# $(call cppflags,FILE): a layer sees only the headers of the libraries it may use.
cppflags = $(if $(filter fs/% tests/unit/fs_% $(bench_fuse_src),$1),$(fs_cppflags)) \
	$(if $(filter db/%,$1),$(sqlite_cflags)) $(if $(filter db/% tier/%,$1),$(xxhash_cflags)) \
	-include $(B)/config.h $(all_cppflags)

# ---- sources ----------------------------------------------------------------------------------

c_in = $(sort $(wildcard $(1)/*.c $(1)/*/*.c))
objs = $(patsubst %.c,$(B)/%.o,$1)

core_src := $(call c_in,db) $(call c_in,tier)
fs_src := $(call c_in,fs)
unit_src := $(sort $(wildcard tests/unit/*.c))
unit_core_src := $(filter tests/unit/test_%,$(unit_src))
unit_fs_src := $(filter tests/unit/fs_%,$(unit_src))
unit_help_src := $(filter-out $(unit_core_src) $(unit_fs_src),$(unit_src))
posix_src := $(call c_in,tests/posix)
model_src := $(call c_in,tests/model)
bench_src := $(call c_in,contrib/bench)
bench_fuse_src := contrib/bench/disk.c contrib/bench/peer.c
fuzz_src := $(sort $(wildcard tests/fuzz/fuzz_*.c))

program := $(B)/hybridfs
unit_core := $(patsubst tests/unit/%.c,$(T)/unit/%,$(unit_core_src))
unit_fs := $(patsubst tests/unit/%.c,$(T)/unit/%,$(unit_fs_src))
posix_test := $(if $(posix_src),$(T)/posixtest)
model_test := $(if $(model_src),$(T)/modeltest)
fuzzers := $(patsubst tests/fuzz/%.c,$(B)/%,$(fuzz_src))
all_objs := $(call objs,$(core_src) $(fs_src) $(unit_src) $(posix_src) $(model_src) $(fuzz_src) \
	$(bench_src))

Q := $(if $(filter-out 0,$(V)),,@)
say = $(if $(filter-out 0,$(V)),,@printf '  %-7s %s\n' $1 $2)

# ---- rules ------------------------------------------------------------------------------------

.PHONY: all programs unit-programs test-programs bench-programs FORCE

all: $(if $(SABOTAGE),$(program),hybridfs) ## build ./hybridfs (the default)

programs: $(program) test-programs
unit-programs: $(unit_core) $(unit_fs)
bench-programs: $(T)/bench/disk $(T)/bench/peer $(T)/bench/catalog
test-programs: unit-programs $(posix_test) $(model_test)

hybridfs: $(program) FORCE
	@cmp -s $< $@ || { cp $< $@.new && mv -f $@.new $@; }

# Stamps change only when what they record does: compiler, flags and libraries; the file lists.
$(B)/flags: FORCE
	@mkdir -p $(@D)
	@command -v $(firstword $(CC)) >/dev/null || { echo "hybridfs needs a C compiler ($(CC)):" \
		"apt-get install $(if $(findstring clang,$(CC)),clang,gcc libc6-dev)" >&2; exit 1; }
	@{ $(CC) --version | head -n 1; echo '$(CC) $(all_cppflags) $(all_cflags)'; \
	   echo '$(base_ldflags) $(VERSION)'; for p in fuse3 $(optional_pkgs); do \
	   echo "$$p $$(pkg-config --modversion $$p 2>/dev/null)"; done; } >$@.new
	@cmp -s $@.new $@ && rm $@.new || mv $@.new $@

$(B)/sources: FORCE
	@mkdir -p $(@D)
	@echo '$(core_src) $(fs_src) $(unit_src) $(posix_src) $(model_src)' >$@.new
	@cmp -s $@.new $@ && rm $@.new || mv $@.new $@

$(B)/config.h: $(B)/flags $(wildcard contrib/probe/*)
	$(call say,PROBE,$@)
	$(Q)contrib/probe/run $(CC) -std=gnu17 $(CPPFLAGS) -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 \
		-DFUSE_USE_VERSION=312 >$@.new
	@printf '#define HYBRIDFS_VERSION "%s"\n' '$(VERSION)' >>$@.new
	@mv $@.new $@

$(B)/%.o: %.c $(B)/flags $(B)/config.h
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(call cppflags,$<) $(all_cflags) -MMD -MP -c -o $@ $<

$(B)/libcore.a: $(call objs,$(core_src)) $(B)/sources
	$(call say,AR,$@)
	@rm -f $@
	$(Q)$(AR) rcsD $@ $(filter %.o,$^)

link = $(Q)mkdir -p $(@D) && $(CC) $(all_cflags) $(base_ldflags) -o $@ $(filter %.o %.a,$^)

$(program): $(call objs,$(fs_src)) $(B)/libcore.a $(B)/sources
	$(if $(filter fs/main.c,$(fs_src)),,$(error there is no fs/main.c to build hybridfs from))
	$(call say,LINK,$@)
	$(link) $(fs_libs) $(core_libs) -lm

$(unit_core): $(T)/unit/%: $(B)/tests/unit/%.o $(call objs,$(unit_help_src)) $(B)/libcore.a \
		$(B)/sources
	$(call say,LINK,$@)
	$(link) $(core_libs) -lm

$(unit_fs): $(T)/unit/%: $(B)/tests/unit/%.o $(call objs,$(unit_help_src)) \
		$(call objs,$(filter-out fs/main.c,$(fs_src))) $(B)/libcore.a $(B)/sources
	$(call say,LINK,$@)
	$(link) $(fs_libs) $(core_libs) -lm

$(T)/posixtest: $(call objs,$(posix_src)) $(B)/sources
	$(call say,LINK,$@)
	$(link) -lm

$(T)/modeltest: $(call objs,$(model_src)) $(B)/sources
	$(call say,LINK,$@)
	$(link) -lm

$(T)/bench/disk: $(call objs,contrib/bench/disk.c contrib/bench/model.c) $(B)/sources
	$(call say,LINK,$@)
	$(link) $(fuse_libs) -lm

$(T)/bench/peer: $(call objs,contrib/bench/peer.c fs/compat.c fs/log.c) $(B)/sources
	$(call say,LINK,$@)
	$(link) $(fuse_libs)

$(T)/bench/catalog: $(B)/contrib/bench/catalog.o $(B)/libcore.a $(B)/sources
	$(call say,LINK,$@)
	$(link) $(core_libs) -lm

$(fuzzers): $(B)/%: $(B)/tests/fuzz/%.o $(B)/libcore.a $(B)/sources
	$(call say,LINK,$@)
	$(link) -fsanitize=fuzzer $(core_libs) -lm

-include $(all_objs:.o=.d)

# ---- tests ------------------------------------------------------------------------------------

.PHONY: test check unit bats bench crash kill points powerpoints databases lint tidy format sanitize tsan fuzz coverage demo features

test: ## install what is missing, then build and run every test
	@contrib/setup.sh test
	@tests/run.sh

check: ## lint and test with what is installed
	@tests/run.sh

unit: ## build and run the unit tests
	@tests/run.sh unit

bats: ## build and run tests/*.bats (or BATS=tests/FILE.bats)
	@tests/run.sh bats $(BATS)

sabotage: ## show that power cuts reveal each invariant that is broken on purpose
	@tests/crash/sabotage.sh

crash: all ## cut the power at CYCLES=50 random moments per workload, recover, verify
	@tests/crash/run.sh --cycles $(or $(CYCLES),50)

kill: all ## kill -9 the daemon CYCLES=100 times under load, start it again, verify
	@tests/kill/run.sh --cycles $(or $(CYCLES),100)

points: ## let the daemon die at every named crash point ROUNDS=1 times three, verify
	@$(MAKE) VARIANT=points build/points/hybridfs
	@tests/kill/points.sh --rounds $(or $(ROUNDS),1)

powerpoints: ## cut the power ROUNDS=1 times at every named crash point, recover, verify
	@$(MAKE) VARIANT=points build/points/hybridfs
	@tests/crash/run.sh --points $(or $(ROUNDS),1) --seconds 4

databases: all ## install PostgreSQL and MariaDB; CYCLES=20 kills and power cuts under each
	@contrib/setup.sh databases
	@tests/db/run.sh --kills $(or $(CYCLES),20) --cuts $(or $(CYCLES),20)

bench: all ## run the benchmarks (contrib/bench/run)
	@if [ -x contrib/bench/run ]; then contrib/bench/run $(BENCH); else \
		echo "no contrib/bench/run in this tree"; fi

lint: ## check layering, style, shell scripts, and run cppcheck
	@contrib/lint.sh

tidy: $(B)/config.h ## run clang-tidy over the sources (slow)
	@clang-tidy --quiet $(core_src) $(fs_src) \
		--checks='-*,bugprone-*,clang-analyzer-*,-bugprone-easily-swappable-parameters,-bugprone-reserved-identifier,-bugprone-narrowing-conversions,-clang-analyzer-security.insecureAPI.*' \
		-- $(call cppflags,fs/) -std=gnu17

format: ## apply .clang-format to the C sources
	@clang-format -i $(shell find db tier fs tests contrib -name '*.[ch]' 2>/dev/null)

sanitize: ## build build/asan/hybridfs with address and undefined behaviour checks
	@$(MAKE) VARIANT=asan programs

tsan: ## build build/tsan/hybridfs with data race checks
	@$(MAKE) VARIANT=tsan programs

fuzz: ## build tests/fuzz/fuzz_*.c and run each for FUZZ_SECONDS [60]
	@$(MAKE) VARIANT=fuzz fuzz-run

.PHONY: fuzz-run
fuzz-run: $(fuzzers)
	@for f in $(fuzzers); do mkdir -p $$f.corpus && \
		$$f -max_total_time=$(or $(FUZZ_SECONDS),60) $$f.corpus || exit 1; done

coverage: ## run unit tests and bats in a coverage build, print lines covered by file
	@find build/cov -name '*.gcda' -delete 2>/dev/null || true
	@$(MAKE) VARIANT=cov programs
	@HFS_VARIANT=cov tests/run.sh unit bats || true
	@contrib/coverage.sh build/cov

demo: ## install what is missing, build, and show hybridfs at work (SRC= SSD= MNT=)
	@contrib/setup.sh build
	@$(MAKE) all
	@SRC='$(SRC)' SSD='$(SSD)' MNT='$(MNT)' contrib/demo.sh

features: $(B)/config.h ## print what the probes found
	@awk '/^#define HAVE_/ { c = $$0; sub(/^[^*]*\* */, "", c); sub(/ *\*\/$$/, "", c); \
		printf "%-4s %-24s %s\n", $$3 ? "yes" : "no", tolower(substr($$2, 6)), c }' $<

# ---- installing -------------------------------------------------------------------------------

share := $(PREFIX)/share
man_pages := $(wildcard contrib/man/*.[1-8])
units := $(wildcard contrib/systemd/*.service contrib/systemd/*.target contrib/*.service)
bash_completion := $(firstword $(wildcard $(addprefix contrib/,completions/hybridfs.bash \
	completions/hybridfs completion/hybridfs.bash completion/hybridfs)))
zsh_completion := $(firstword $(wildcard contrib/completions/_hybridfs contrib/completion/_hybridfs))
fish_completion := $(firstword $(wildcard $(addsuffix /hybridfs.fish,contrib/completions \
	contrib/completion)))
mount_helper := $(wildcard contrib/mount.hybridfs)

# One line for each installed file: MODE SOURCE TARGET. Uninstall reads the same list.
define install_list
0755 hybridfs $(PREFIX)/bin/hybridfs
$(foreach m,$(man_pages),0644 $m $(share)/man/man$(subst .,,$(suffix $m))/$(notdir $m)$(newline))
$(foreach u,$(units),0644 $u $(PREFIX)/lib/systemd/system/$(notdir $u)$(newline))
$(if $(bash_completion),0644 $(bash_completion) $(share)/bash-completion/completions/hybridfs)
$(if $(zsh_completion),0644 $(zsh_completion) $(share)/zsh/site-functions/_hybridfs)
$(if $(fish_completion),0644 $(fish_completion) $(share)/fish/vendor_completions.d/hybridfs.fish)
$(if $(mount_helper),0755 $(mount_helper) $(SBINDIR)/mount.hybridfs)
endef
export install_list

.PHONY: install uninstall dist clean help

install: all ## install under PREFIX [/usr/local] and SBINDIR [/sbin], below DESTDIR
	@printf '%s\n' "$$install_list" | while read -r mode from to; do \
		[ -n "$$mode" ] || continue; \
		echo "  INSTALL $(DESTDIR)$$to"; \
		install -D -m "$$mode" "$$from" "$(DESTDIR)$$to" || exit 1; done

uninstall: ## remove what install put there
	@printf '%s\n' "$$install_list" | while read -r mode from to; do \
		[ -n "$$mode" ] || continue; \
		echo "  REMOVE  $(DESTDIR)$$to"; \
		rm -f "$(DESTDIR)$$to" || exit 1; done

dist: ## write hybridfs-VERSION.tar.gz of the committed tree
	@git archive --format=tar.gz --prefix=hybridfs-$(VERSION)/ \
		-o hybridfs-$(VERSION).tar.gz HEAD
	@echo "hybridfs-$(VERSION).tar.gz"

clean: ## remove everything that was built
	rm -rf build hybridfs hybridfs-*.tar.gz

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' Makefile
	@echo "Variables: V=1 CC= O= WERROR=1 VARIANT= PREFIX= DESTDIR= SBINDIR="
