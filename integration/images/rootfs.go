package images

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// rootfs is what programs of this machine need to run in an image of their own: path in the image to path here.
type rootfs map[string]string

// program adds one, at the path that it has here.
func (r rootfs) program(path string) { r[path] = path }

// tree adds the files below a directory; where there is none, it adds nothing.
func (r rootfs) tree(dir string) {
	_ = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || strings.Contains(path, "/man/") {
			return nil
		}
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			r[path] = path
		}
		return nil
	})
}

var library = regexp.MustCompile(`(?m)^\s*(?:\S+ => )?(/\S+) \(0x`)

// libraries adds those of all programs and libraries that are in it.
func (r rootfs) libraries(ctx context.Context) error {
	var binaries []string
	for _, here := range r {
		if isELF(here) {
			binaries = append(binaries, here)
		}
	}
	slices.Sort(binaries)
	out, err := exec.CommandContext(ctx, "ldd", binaries...).Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) { // it says so of each file that is static
		return fmt.Errorf("find libraries: %w", err)
	}
	for _, m := range library.FindAllSubmatch(out, -1) {
		path := string(m[1])
		r[path] = path
		if strings.HasPrefix(filepath.Base(path), "libc.so") { // loads these by name, to look up hosts and users
			for _, name := range []string{"libnss_files.so.2", "libnss_dns.so.2"} {
				if nss := filepath.Join(filepath.Dir(path), name); isELF(nss) {
					r[nss] = nss
				}
			}
		}
	}
	return nil
}

func isELF(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	magic := make([]byte, 4)
	_, err = io.ReadFull(f, magic)
	return err == nil && string(magic) == "\x7fELF"
}

// hash is that of the files' names, sizes and times, and of more.
func (r rootfs) hash(more ...string) (string, error) {
	h := sha256.New()
	for _, path := range slices.Sorted(maps.Keys(r)) {
		info, err := os.Stat(r[path])
		if err != nil {
			return "", err
		}
		_, _ = fmt.Fprintln(h, path, info.Size(), info.Mode(), info.ModTime().UnixNano())
	}
	_, _ = fmt.Fprintln(h, more)
	return hex.EncodeToString(h.Sum(nil)[:8]), nil
}

// merged are the directories that are links into /usr; all of ours are in /usr.
var merged = []string{"/bin", "/lib", "/lib64", "/sbin"}

// write puts the files into a layer. Links are followed: what is in the image are plain files.
func (r rootfs) write(l *layer) error {
	for _, dir := range merged {
		l.dir("/usr"+dir, 0o755, 0)
		l.link(dir, "usr"+dir)
	}
	for _, path := range slices.Sorted(maps.Keys(r)) {
		data, err := os.ReadFile(r[path])
		if err != nil {
			return err
		}
		info, err := os.Stat(r[path])
		if err != nil {
			return err
		}
		for _, dir := range merged {
			if strings.HasPrefix(path, dir+"/") {
				path = "/usr" + path
				break
			}
		}
		l.file(path, int64(info.Mode().Perm()|0o444), data)
	}
	return nil
}
