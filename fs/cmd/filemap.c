// SPDX-License-Identifier: GPL-2.0-or-later
#include "fs/cmd/filemap.h"

#include <string.h>

#include "db/base.h"

enum glyph { ALL, PARTLY, HDD, DIRTY, HOLE };

static const char *const glyphs[2][5] = {
	{ "#", "+", ".", "*", " " },
	{ "\u2588", "\u2584", "\u00b7", "\u2593", " " },
};

void filemap_init(struct filemap *m, uint64_t file_size_bytes)
{
	uint64_t cell = file_size_bytes / FILEMAP_CELLS + (file_size_bytes % FILEMAP_CELLS != 0);

	memset(m, 0, sizeof(*m));
	m->cell_bytes = max_u64(round_up_u64(cell, FILEMAP_BLOCK), FILEMAP_BLOCK);
	m->n_cells = (unsigned)(file_size_bytes / m->cell_bytes +
				(file_size_bytes % m->cell_bytes != 0));
}

void filemap_add(struct filemap *m, uint64_t offset, uint64_t length, enum filemap_kind kind)
{
	while (length > 0 && offset / m->cell_bytes < m->n_cells) {
		uint64_t part = min_u64(length, m->cell_bytes - offset % m->cell_bytes);

		m->bytes[offset / m->cell_bytes][kind] += part;
		offset += part;
		length -= part;
	}
}

static enum glyph glyph_of(const uint64_t bytes[FILEMAP_KINDS])
{
	if (bytes[FILEMAP_DIRTY] > 0)
		return DIRTY;
	if (bytes[FILEMAP_CLEAN] > 0)
		return bytes[FILEMAP_HDD] > 0 ? PARTLY : ALL;
	if (bytes[FILEMAP_HDD] > 0 || bytes[FILEMAP_HOLE] == 0)
		return HDD;
	return HOLE;
}

void filemap_draw(const struct filemap *m, bool utf8, FILE *f)
{
	putc('[', f);
	for (unsigned i = 0; i < m->n_cells; i++)
		fputs(glyphs[utf8][glyph_of(m->bytes[i])], f);
	putc(']', f);
}

void filemap_legend(bool utf8, FILE *f)
{
	const char *const *g = glyphs[utf8];

	fprintf(f,
		"%s on the SSD  %s partly  %s on the HDD only  %s some of it dirty  blank: a hole",
		g[ALL], g[PARTLY], g[HDD], g[DIRTY]);
}
