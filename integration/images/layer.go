package images

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"path"
	"runtime"
	"strings"
	"time"
)

// config is the part of an image's configuration that we set.
type config struct {
	User       string            `json:",omitempty"`
	Env        []string          `json:",omitempty"`
	Entrypoint []string          `json:",omitempty"`
	Cmd        []string          `json:",omitempty"`
	StopSignal string            `json:",omitempty"`
	Labels     map[string]string `json:",omitempty"`
}

// layer is the one layer of an image: its files. An error of it is that of archive.
type layer struct {
	tar  *tar.Writer
	to   bytes.Buffer
	made map[string]bool // paths
	err  error
}

func newLayer() *layer {
	l := &layer{made: map[string]bool{"/": true}}
	l.tar = tar.NewWriter(&l.to)
	return l
}

func (l *layer) add(h tar.Header, data []byte) {
	if l.err != nil || l.made[h.Name] {
		return
	}
	l.parents(h.Name)
	l.made[h.Name] = true
	h.Name = strings.TrimPrefix(h.Name, "/")
	h.Size = int64(len(data))
	if l.err = l.tar.WriteHeader(&h); l.err == nil {
		_, l.err = l.tar.Write(data)
	}
}

func (l *layer) parents(name string) {
	if parent := path.Dir(name); !l.made[parent] {
		l.dir(parent, 0o755, 0)
	}
}

// dir adds a directory that belongs to a user.
func (l *layer) dir(name string, mode int64, user int) {
	l.add(tar.Header{Name: name, Typeflag: tar.TypeDir, Mode: mode, Uid: user, Gid: user}, nil)
}

func (l *layer) file(name string, mode int64, data []byte) {
	l.add(tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: mode}, data)
}

func (l *layer) link(name, target string) {
	l.add(tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: target, Mode: 0o777}, nil)
}

// archive writes what docker load reads.
func (l *layer) archive(w io.Writer, name string, c config) error {
	if l.err == nil {
		l.err = l.tar.Close()
	}
	if l.err != nil {
		return l.err
	}
	sum := sha256.Sum256(l.to.Bytes())
	text, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux", "created": time.Now().UTC().Format(time.RFC3339), "config": c,
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + hex.EncodeToString(sum[:])}},
	})
	if err != nil {
		return err
	}
	configName := sha256.Sum256(text)
	file := hex.EncodeToString(configName[:]) + ".json"
	manifest, err := json.Marshal([]map[string]any{{"Config": file, "RepoTags": []string{name}, "Layers": []string{"layer.tar"}}})
	if err != nil {
		return err
	}
	out := tar.NewWriter(w)
	for _, f := range []struct {
		name string
		data []byte
	}{{file, text}, {"layer.tar", l.to.Bytes()}, {"manifest.json", manifest}} {
		if err := out.WriteHeader(&tar.Header{Name: f.name, Mode: 0o644, Size: int64(len(f.data))}); err != nil {
			return err
		}
		if _, err := out.Write(f.data); err != nil {
			return err
		}
	}
	return out.Close()
}
