package config

import (
	"bytes"
	"errors"
	"fmt"
	"os"
)

// Source is a file of a configuration as it was read, and where to read it again.
type Source struct {
	file string
	env  func(string) (string, bool)
	data []byte
	read *Config // what Load made of data
}

// Load reads a file and lets the environment override it. What is wrong with either is an [Errors].
func Load(file string, env func(string) (string, bool)) (*Config, error) {
	s, err := (&Source{file: file, env: env}).Reread()
	if err != nil {
		return nil, err
	}
	return s.Load()
}

// Source that c was loaded from; nil where it was not loaded from a file.
func (c *Config) Source() *Source { return c.source }

// File is the path.
func (s *Source) File() string { return s.file }

// Reread returns the file as it is now.
func (s *Source) Reread() (*Source, error) {
	data, err := os.ReadFile(s.file)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	return &Source{file: s.file, env: s.env, data: data}, nil
}

// Same says whether both have the same text.
func (s *Source) Same(other *Source) bool { return bytes.Equal(s.data, other.data) }

// Load makes the configuration. What is wrong with the file or the environment is an [Errors].
func (s *Source) Load() (*Config, error) {
	c, err := Parse(s.file, s.data, s.env)
	if err != nil {
		return nil, err
	}
	if err := c.ApplyEnv(s.env); err != nil {
		return nil, err
	}
	asRead := *c
	s.read, c.source = &asRead, s
	return c, nil
}

var errEmpty = errors.New("is empty: a file without a word is taken for one that is being written")

// Reload makes a configuration of the text that its file has now: c with the routes of now, and the names of the sections of the file that
// differ in something else, which takes effect at the next start. Routes that name no project stay with c's. What is wrong with the file is an
// [Errors].
func (c *Config) Reload(now *Source) (next *Config, later []string, err error) {
	if len(bytes.TrimSpace(now.data)) == 0 {
		return nil, nil, Errors{{File: now.file, Reason: errEmpty.Error()}}
	}
	read, err := now.Load()
	if err != nil {
		return nil, nil, err
	}
	merged := *c
	merged.file, merged.where = read.file, read.where
	merged.Routes, merged.SignalsRoute = read.Routes, read.SignalsRoute
	for i := range merged.Routes {
		if _, named := read.where[fmt.Sprintf("routes[%d].project", i)]; !named {
			merged.Routes[i].Project = c.Project
		}
	}
	return &merged, c.source.read.differences(read), nil
}
