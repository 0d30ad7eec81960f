package httpapi

// Waiting is how many requests wait, or are streams.
func (s *Server) Waiting() int { return len(s.waiting) }
