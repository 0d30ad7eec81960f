package deploy

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pointsman/pointsman/internal/cli"
	"github.com/pointsman/pointsman/internal/config"
)

// files are all that is here but tests, by their paths.
func files(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{"../.goreleaser.yaml": read(t, "../.goreleaser.yaml")}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && !strings.HasSuffix(path, ".go") {
			all[path] = read(t, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// documents of a YAML file.
func documents(t *testing.T, path, text string) (docs []map[string]any) {
	t.Helper()
	d := yaml.NewDecoder(strings.NewReader(text), yaml.Strict())
	for {
		var doc map[string]any
		if err := d.Decode(&doc); err != nil {
			if err.Error() == "EOF" {
				return docs
			}
			t.Errorf("%s: %v", path, err)
			return docs
		}
		if doc != nil {
			docs = append(docs, doc)
		}
	}
}

// Variables, metrics and programs that the files name are there, and what they run is a command with its flags.
func TestFiles(t *testing.T) {
	t.Parallel()
	known, variables := metrics(t), environment(t)
	for path, text := range files(t) {
		for _, name := range regexp.MustCompile(`\bPOINTSMAN_[A-Z_]+`).FindAllString(text, -1) {
			if !slices.Contains(variables, name) && !slices.Contains([]string{"POINTSMAN_IMAGE", "POINTSMAN_TARGET"}, name) { // of compose.yaml itself
				t.Errorf("%s: no program reads %s", path, name)
			}
		}
		for _, name := range regexp.MustCompile(`\bpointsman_(?:bridge|signal|steps?|pick|commits?|queue|wake|leases|outbox|webhook|event|build)_\w+`).FindAllString(text, -1) {
			if _, ok := known[name]; !ok {
				t.Errorf("%s: there is no metric %s", path, name)
			}
		}
		switch filepath.Ext(path) {
		case ".yaml":
			for _, doc := range documents(t, path, text) {
				walk(doc, func(m map[string]any) { checkCommand(t, path, m) })
			}
		case ".service":
			line := regexp.MustCompile(`(?m)^ExecStart=/usr/bin/(.*)$`).FindStringSubmatch(text)
			if line == nil {
				t.Errorf("%s: starts nothing", path)
				continue
			}
			run(t, path, strings.Fields(line[1]))
		}
	}
}

// environment are the variables that the programs read.
func environment(t *testing.T) (names []string) {
	t.Helper()
	for _, dir := range []string{"../internal/config", "../internal/cli"} {
		sources, err := filepath.Glob(dir + "/*.go")
		if err != nil || len(sources) == 0 {
			t.Fatalf("%s: %v", dir, err)
		}
		for _, source := range sources {
			if !strings.HasSuffix(source, "_test.go") {
				names = append(names, regexp.MustCompile(`"(POINTSMAN_[A-Z_]+)"`).FindAllString(read(t, source), -1)...)
			}
		}
	}
	for i, name := range names {
		names[i] = strings.Trim(name, `"`)
	}
	return names
}

// walk visits all objects.
func walk(v any, visit func(map[string]any)) {
	switch v := v.(type) {
	case map[string]any:
		visit(v)
		for _, item := range v {
			walk(item, visit)
		}
	case []any:
		for _, item := range v {
			walk(item, visit)
		}
	}
}

// checkCommand of a container that runs one of ours: compose's entrypoint and command, or Kubernetes' command and args.
func checkCommand(t *testing.T, path string, m map[string]any) {
	t.Helper()
	program, args := m["entrypoint"], m["command"]
	if program == nil {
		program, args = m["command"], m["args"]
	}
	words := append(texts(program), texts(args)...)
	if len(words) > 0 && slices.Contains([]string{"/bridge", "/worker", "/pointsman"}, words[0]) {
		run(t, path, append([]string{words[0][1:]}, words[1:]...))
	}
}

func texts(v any) (words []string) {
	list, _ := v.([]any)
	for _, item := range list {
		words = append(words, fmt.Sprint(item))
	}
	return words
}

// run finds the command, and reads its flags without doing anything.
func run(t *testing.T, path string, words []string) {
	t.Helper()
	roots := map[string]func() *cobra.Command{"bridge": cli.Bridge, "worker": cli.Worker, "pointsman": cli.Pointsman}
	root, ok := roots[words[0]]
	if !ok {
		t.Errorf("%s: there is no program %s", path, words[0])
		return
	}
	c, rest, err := root().Find(words[1:])
	if err == nil && c.HasSubCommands() {
		err = fmt.Errorf("%s is a group", c.CommandPath())
	}
	if err == nil {
		flags := pflag.NewFlagSet(c.Name(), pflag.ContinueOnError)
		flags.AddFlagSet(c.InheritedFlags())
		flags.AddFlagSet(c.Flags())
		flags.AddFlagSet(c.PersistentFlags())
		if err = flags.Parse(rest); err == nil && flags.NArg() > 0 {
			err = fmt.Errorf("%s takes no %s", c.CommandPath(), flags.Arg(0))
		}
	}
	if err != nil {
		t.Errorf("%s: %s: %v", path, strings.Join(words, " "), err)
	}
}

// The configurations are good, and their ports those that are published, probed and scraped.
func TestPorts(t *testing.T) {
	t.Parallel()
	var ports []string
	for _, path := range []string{"pointsman.yaml", "kubernetes/pointsman.yaml"} {
		env := map[string]string{"POINTSMAN_DATABASE_URL": "postgres://localhost/x", "POINTSMAN_ADMIN_TOKEN": "a-token-of-some-length"}
		lookup := func(name string) (string, bool) { v, ok := env[name]; return v, ok }
		cfg, err := config.Parse(path, []byte(read(t, path)), lookup)
		if err == nil {
			err = cfg.ApplyEnv(lookup)
		}
		if err == nil {
			err = cfg.CheckBind(false)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, addr := range []string{cfg.HTTP.Addr, cfg.Worker.HTTPAddr} {
			ports = append(ports, addr[strings.LastIndex(addr, ":")+1:])
		}
	}
	found := 0
	for path, text := range files(t) {
		for _, port := range regexp.MustCompile(`(?:containerPort: |, port: |prometheus.io/port: "|:|port: \w+, targetPort: )(80\d\d)\b`).FindAllStringSubmatch(text, -1) {
			found++
			if !slices.Contains(ports, port[1]) {
				t.Errorf("%s: nothing listens on port %s", path, port[1])
			}
		}
	}
	if found < 8 {
		t.Errorf("%d ports found", found)
	}
}

// What Kubernetes runs has all that the stricter clusters ask for.
func TestKubernetes(t *testing.T) {
	t.Parallel()
	kinds := map[string]int{}
	var resources struct {
		Resources []string `yaml:"resources"`
	}
	if err := yaml.Unmarshal([]byte(read(t, "kubernetes/kustomization.yaml")), &resources); err != nil {
		t.Fatal(err)
	}
	for _, name := range resources.Resources {
		for _, doc := range documents(t, name, read(t, "kubernetes/"+name)) {
			kinds[doc["kind"].(string)]++
			walk(doc, func(m map[string]any) {
				if m["image"] == nil {
					return
				}
				s, _ := m["securityContext"].(map[string]any)
				if s["readOnlyRootFilesystem"] != true || s["allowPrivilegeEscalation"] != false {
					t.Errorf("%s: container %v may too much: %v", name, m["name"], s)
				}
				for _, probe := range []string{"startupProbe", "livenessProbe", "readinessProbe"} {
					if doc["kind"] == "Deployment" && m[probe] == nil {
						t.Errorf("%s: no %s", name, probe)
					}
				}
			})
		}
	}
	for kind, n := range map[string]int{"Deployment": 2, "Service": 2, "PodDisruptionBudget": 2, "HorizontalPodAutoscaler": 2, "NetworkPolicy": 3, "Job": 1} {
		if kinds[kind] != n {
			t.Errorf("%d of the kind %s, want %d", kinds[kind], kind, n)
		}
	}
}

// The Dockerfile copies what make dist and its own build make, and ends as nobody on nothing.
func TestDockerfile(t *testing.T) {
	t.Parallel()
	text := read(t, "Dockerfile")
	stages := strings.Split(text, "\nFROM ")[1:]
	for _, stage := range stages {
		if strings.HasPrefix(stage, "golang") {
			continue
		}
		for _, want := range []string{"scratch AS", "USER 65532:65532", "STOPSIGNAL SIGTERM", "/pointsman", "/bridge", "/worker", "ca-certificates.crt"} {
			if !strings.Contains(stage, want) {
				t.Errorf("the stage %.20s has no %s", stage, want)
			}
		}
	}
	makefile, err := os.ReadFile("../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range regexp.MustCompile(`COPY (dist/.*) /`).FindAllStringSubmatch(text, -1) {
		for copied := range strings.FieldsSeq(name[1]) {
			if base := filepath.Base(copied); !bytes.Contains(makefile, []byte("cmd/"+base)) && !bytes.Contains(makefile, []byte("/"+base+" dist/")) {
				t.Errorf("make dist makes no %s", copied)
			}
		}
	}
}
