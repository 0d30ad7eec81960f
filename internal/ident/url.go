package ident

import (
	"fmt"
	"net/url"
	"strconv"
	"unicode/utf8"
)

// MaxURL is the most bytes a URL may have.
const MaxURL = 2048

// URL checks one that webhooks are sent to: http or https, with a host, without a user and password, of at most [MaxURL] bytes. Whether
// the host may be reached is decided when it is. The error is an [*Error].
func URL(field, s string) error {
	if len(s) > MaxURL {
		return &Error{field, fmt.Sprintf("has %d bytes: a URL has at most %d", len(s), MaxURL)}
	}
	if !utf8.ValidString(s) {
		return &Error{field, "is not valid UTF-8: escape other bytes with %"}
	}
	u, err := url.Parse(s)
	if err != nil { // its text has the URL, and with it what may be a password
		return &Error{field, "is no URL: want https://host/path"}
	}
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return &Error{field, "is no URL of http or https: want https://host/path"}
	case u.Hostname() == "":
		return &Error{field, "has no host: want https://host/path"}
	case u.User != nil:
		return &Error{field, "has a user or password, which would stand in lists and logs: put a secret token into the path, and check the signature"}
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return &Error{field, fmt.Sprintf("has the port %s: want 1 to 65535", port)}
		}
	}
	return nil
}
