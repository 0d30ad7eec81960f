package app

import "runtime/debug"

// stamp is the version that a build is given: -ldflags "-X github.com/pointsman/pointsman/internal/app.stamp=1.2.3".
var stamp string

// Version of this build: its stamp, the module's, or the commit.
var Version = func() string {
	if stamp != "" {
		return stamp
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return "devel-" + s.Value[:min(12, len(s.Value))]
		}
	}
	return "devel"
}()
