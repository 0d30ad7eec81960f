package config

import (
	"fmt"
	"slices"

	"github.com/pointsman/pointsman/internal/expr"
	"github.com/pointsman/pointsman/subjects"
)

// Warnings are what is allowed and is probably not meant: two routes that make signals for one key of one message. Each is at the second
// of them.
func (c *Config) Warnings() (all Errors) {
	for i := range c.Routes {
		for j := range i {
			reason := c.Routes[i].clash(&c.Routes[j])
			if reason == "" {
				continue
			}
			at := c.where[fmt.Sprintf("routes[%d].name", i)]
			all = append(all, Error{File: c.file, Line: at.line, Column: at.column, Field: fmt.Sprintf("routes[%d]", i), Reason: reason})
		}
	}
	return all
}

// clash says what becomes of a message that both routes read for one key; "": nothing that a text could tell. Two conditions may exclude each
// other, which is for whoever wrote them to know.
func (t *Route) clash(other *Route) string {
	switch {
	case t.Signal == nil || other.Signal == nil || t.Project != other.Project || t.Stream != other.Stream:
		return ""
	case t.When != nil && other.When != nil && t.When.Source() != other.When.Source():
		return ""
	case !overlap(t.Subjects, other.Subjects) || !shareKey(t.CorrelationKeys, other.CorrelationKeys):
		return ""
	}
	sameName, sameDedup := text(t.Signal) == text(other.Signal), text(t.DedupKey) == text(other.DedupKey)
	switch {
	case sameName && sameDedup:
		return fmt.Sprintf("makes the signal of route %s again, of the messages that both read: the second is a duplicate, and one route is enough", other.Name)
	case sameName:
		return fmt.Sprintf("makes the signal of route %s again, of the messages that both read: their dedup keys differ, so the instance gets it twice", other.Name)
	case sameDedup:
		return fmt.Sprintf("has the dedup keys of route %s, of the messages that both read: for one instance the second signal is a conflict and goes to the dead letters, "+
			"so give one of them a dedup_key of its own", other.Name)
	}
	return ""
}

// overlap says whether a subject may match a filter of both; none at all are those of a consumer, which are not known.
func overlap(a, b []string) bool {
	return slices.ContainsFunc(a, func(x string) bool {
		return slices.ContainsFunc(b, func(y string) bool { return subjects.Overlap(x, y) })
	})
}

func shareKey(a, b []*expr.Template) bool {
	return slices.ContainsFunc(a, func(x *expr.Template) bool {
		return slices.ContainsFunc(b, func(y *expr.Template) bool { return text(x) == text(y) })
	})
}

func text(t *expr.Template) string {
	if t == nil {
		return ""
	}
	return t.Source()
}
