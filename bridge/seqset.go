package bridge

// seqSet is a set of sequences, in about a bit each where they are near one another.
type seqSet map[uint64]*[64]uint64

func (s seqSet) add(seq uint64) {
	page := s[seq>>12]
	if page == nil {
		page = new([64]uint64)
		s[seq>>12] = page
	}
	page[seq>>6&63] |= 1 << (seq & 63)
}

func (s seqSet) has(seq uint64) bool {
	page := s[seq>>12]
	return page != nil && page[seq>>6&63]&(1<<(seq&63)) != 0
}
