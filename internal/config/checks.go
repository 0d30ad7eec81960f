package config

import (
	"fmt"
	"math"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Checks of values that the file, the environment or both hold. Each returns what is wrong, "" for nothing.

func checkAny(string) string { return "" }

func checkDatabaseURL(s string) string {
	if s == "" || !strings.Contains(s, "://") {
		return "" // none yet, or in the form of key=value
	}
	// An error of url.Parse repeats the URL, and with it the password.
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" {
		return "is no URL of Postgres: want postgres://user:password@host:5432/database"
	}
	return ""
}

// checkDomain wants one token of a subject, as a domain is a part of subjects.
func checkDomain(s string) string {
	if strings.ContainsAny(s, ". *>\t\r\n") {
		return "is no name of a JetStream domain: want one word without dots, wildcards and spaces"
	}
	return ""
}

func checkNATSURL(s string) string {
	for server := range strings.SplitSeq(s, ",") {
		server = strings.TrimSpace(server)
		if !strings.Contains(server, "://") {
			server = "nats://" + server
		}
		u, err := url.Parse(server)
		if err != nil || u.Host == "" {
			return "has a server that is no URL: want nats://host:4222, several separated by commas"
		}
		switch u.Scheme {
		case "nats", "tls", "ws", "wss":
		default:
			return fmt.Sprintf("has a server with the scheme %q: want nats, tls, ws or wss", u.Scheme)
		}
	}
	return ""
}

func checkAddr(s string) string {
	_, port, err := net.SplitHostPort(s)
	if err != nil {
		return fmt.Sprintf("%q is no address: want host:port, as 127.0.0.1:8080", s)
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		return fmt.Sprintf("%q has no valid port: want 0 to 65535", s)
	}
	return ""
}

func checkStream(s string) string {
	if s == "" {
		return "is empty: want the name of a stream"
	}
	if i := strings.IndexFunc(s, func(r rune) bool { return r <= ' ' || r == 0x7f || strings.ContainsRune(`.*>/\`, r) }); i >= 0 {
		return fmt.Sprintf("%q has %q, which no name of a stream or consumer has", s, s[i])
	}
	return ""
}

func checkSchema(s string) string {
	for i := range len(s) {
		c := s[i]
		if !('a' <= c && c <= 'z' || c == '_' || i > 0 && '0' <= c && c <= '9') {
			return fmt.Sprintf("%q is no schema: want a-z 0-9 _, beginning with no digit", s)
		}
	}
	if s == "" || len(s) > 63 || strings.HasPrefix(s, "pg_") {
		return fmt.Sprintf("%q is no schema: want 1 to 63 of a-z 0-9 _, not beginning with pg_", s)
	}
	return ""
}

// parseSize reads a number of bytes: 1048576, 64KiB, 1MiB, 10MB.
func parseSize(s string) (int, bool) {
	digits := strings.TrimRight(s, "KMGiB ")
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 0 {
		return 0, false
	}
	unit := map[string]int64{
		"": 1, "B": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30,
	}[strings.TrimSpace(s[len(digits):])]
	if unit == 0 || n > math.MaxInt32/unit {
		return 0, false
	}
	return int(n * unit), true
}

func formatSize(n int) string {
	switch {
	case n >= 1<<20 && n%(1<<20) == 0:
		return strconv.Itoa(n>>20) + "MiB"
	case n >= 1<<10 && n%(1<<10) == 0:
		return strconv.Itoa(n>>10) + "KiB"
	}
	return strconv.Itoa(n)
}

// formatDuration writes 1h for what Duration.String writes as 1h0m0s.
func formatDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// CheckDatabase says whether the database is named at all, for the programs that need it.
func (c *Config) CheckDatabase() error {
	if c.Database.URL == "" {
		return c.Errorf("database.url", "is empty: set it, or POINTSMAN_DATABASE_URL")
	}
	return nil
}

// CheckBind says whether the API may bind http.addr: without an admin token and without any API key only a loopback address.
// The caller knows whether there are keys.
func (c *Config) CheckBind(keys bool) error {
	if keys || c.HTTP.AdminToken != "" {
		return nil
	}
	host, _, err := net.SplitHostPort(c.HTTP.Addr)
	if ip := net.ParseIP(host); err == nil && (host == "localhost" || ip != nil && ip.IsLoopback()) {
		return nil
	}
	return c.Errorf("http.addr", "%q is reachable from elsewhere, and there is no admin token and no API key:"+
		" bind 127.0.0.1, or set POINTSMAN_ADMIN_TOKEN, or make a key with pointsman keys create", c.HTTP.Addr)
}
