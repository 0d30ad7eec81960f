package config

import (
	"fmt"
	"slices"
	"strings"
)

// override is a variable that beats a field of the file.
type override struct {
	name  string
	field *string
	check func(string) (reason string)
}

func (c *Config) overrides() []override {
	return []override{
		{"POINTSMAN_DATABASE_URL", &c.Database.URL, checkDatabaseURL},
		{"POINTSMAN_NATS_URL", &c.NATS.URL, checkNATSURL},
		{"POINTSMAN_NATS_CREDS", &c.NATS.Creds, checkAny},
		{"POINTSMAN_HTTP_ADDR", &c.HTTP.Addr, checkAddr},
		{"POINTSMAN_WORKER_HTTP_ADDR", &c.Worker.HTTPAddr, checkAddr},
		{"POINTSMAN_ADMIN_TOKEN", &c.HTTP.AdminToken, checkAny},
	}
}

// ApplyEnv lets POINTSMAN_DATABASE_URL, POINTSMAN_NATS_URL, POINTSMAN_NATS_CREDS, POINTSMAN_HTTP_ADDR,
// POINTSMAN_WORKER_HTTP_ADDR and POINTSMAN_ADMIN_TOKEN beat what c has. An empty variable counts as not set.
// The credentials take the place of any other way to authenticate. What is wrong is an [Errors].
func (c *Config) ApplyEnv(env func(string) (string, bool)) error {
	var errs Errors
	for _, o := range c.overrides() {
		value, _ := env(o.name)
		if value == "" {
			continue
		}
		if reason := o.check(value); reason != "" {
			errs = append(errs, Error{File: "environment", Field: o.name, Reason: reason})
			continue
		}
		*o.field = value
		if o.field == &c.NATS.Creds {
			c.NATS.NKey, c.NATS.User, c.NATS.Password, c.NATS.Token = "", "", "", ""
		}
	}
	return errs.err()
}

// optional says whether a variable counts as empty when it is not set.
func optional(name string) bool {
	return slices.ContainsFunc(new(Config).overrides(), func(o override) bool { return o.name == name })
}

// substitute replaces ${NAME} and ${NAME:-default} in s, and $${ by ${.
func substitute(s string, env func(string) (string, bool)) (result, reason string) {
	var b strings.Builder
	for {
		i := strings.Index(s, "${")
		if i < 0 {
			b.WriteString(s)
			return b.String(), ""
		}
		if i > 0 && s[i-1] == '$' {
			b.WriteString(s[:i-1] + "${")
			s = s[i+2:]
			continue
		}
		end := strings.IndexByte(s[i:], '}')
		if end < 0 {
			return "", "${ is not closed by }: write $${ for the two characters themselves"
		}
		value, reason := variable(s[i+2:i+end], env)
		if reason != "" {
			return "", reason
		}
		b.WriteString(s[:i] + value)
		s = s[i+end+1:]
	}
}

func variable(reference string, env func(string) (string, bool)) (value, reason string) {
	name, fallback, hasFallback := strings.Cut(reference, ":-")
	if !variableName(name) {
		return "", fmt.Sprintf("${%s} names no variable: want ${NAME} or ${NAME:-default}, or $${ for the two characters themselves", reference)
	}
	value, set := env(name)
	switch {
	case hasFallback && value == "":
		return fallback, ""
	case set, optional(name):
		return value, ""
	}
	return "", fmt.Sprintf("the environment has no %s: set it, or write ${%s:-default}", name, name)
}

func variableName(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '_' || i > 0 && '0' <= c && c <= '9') {
			return false
		}
	}
	return s != ""
}
