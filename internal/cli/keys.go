package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/pointsman/pointsman/internal/app"
	"github.com/pointsman/pointsman/internal/auth"
	"github.com/pointsman/pointsman/internal/config"
	"github.com/pointsman/pointsman/internal/ident"
)

func keysCommand(o *options) *cobra.Command {
	c := &cobra.Command{
		Use: "keys", Short: "Make, list and revoke API keys", Args: args(cobra.NoArgs),
		Long: `keys has the API keys of the HTTP API. A key belongs to one project and has a scope: read sees, send also starts, signals and sends events, admin
also does what operators do. With the first key, requests need one, also where the API was open to its own machine. The keys are in the
database; no bridge is asked.`,
		Example: "  pointsman keys create --project default --scope send --name shop\n  pointsman keys list\n  pointsman keys revoke shop",
		RunE:    func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(keysCreateCommand(o), keysListCommand(o), keysRevokeCommand(o))
	return c
}

// keyFlags are those of the commands about keys.
type keyFlags struct {
	*options
	output
	project string
}

func (f *keyFlags) add(c *cobra.Command, project string) {
	c.Flags().StringVar(&f.project, "project", "", project)
	f.addOutput(c)
}

// with reads the configuration, and gives the keys of its database.
func (f *keyFlags) with(c *cobra.Command, do func(cfg *config.Config, keys *auth.Keys) error) error {
	cfg, err := f.load(c)
	if err != nil {
		return err
	}
	err = app.WithKeys(c.Context(), cfg, func(keys *auth.Keys) error { return do(cfg, keys) })
	var wrong *ident.Error
	if errors.As(err, &wrong) {
		return usage(c, fmt.Errorf("--%s: %s", wrong.Field, wrong.Reason))
	}
	return err
}

// projectOf is the one that was named, or the configuration's.
func (f *keyFlags) projectOf(cfg *config.Config) string {
	if f.project == "" {
		return cfg.Project
	}
	return f.project
}

func keysCreateCommand(o *options) *cobra.Command {
	f := &keyFlags{options: o}
	var scope, name string
	c := &cobra.Command{
		Use: "create --scope SCOPE", Short: "Make a key, and print it this once", Args: args(cobra.NoArgs),
		Long: `create makes an API key and prints it, alone, on its standard output. It is not kept anywhere: who loses it makes another one. What is sent with
it has its name as sent_by.`,
		Example: "  pointsman keys create --project shop --scope send --name checkout\n  pointsman keys create --scope read --json",
		RunE: func(c *cobra.Command, _ []string) error {
			may, err := auth.ParseScope(scope)
			if err != nil {
				return usage(c, fmt.Errorf("--%w", err))
			}
			return f.with(c, func(cfg *config.Config, keys *auth.Keys) error {
				secret, key, err := keys.Create(c.Context(), f.projectOf(cfg), name, may)
				if err != nil {
					return err
				}
				if f.json {
					return f.document(c.OutOrStdout(), madeKey{secret, key})
				}
				fmt.Fprintln(c.ErrOrStderr(), "The key", key.Name, "of the project", key.Project+", with the scope", key.Scope+"; it is not shown again:")
				_, err = fmt.Fprintln(c.OutOrStdout(), secret)
				return err
			})
		},
	}
	f.add(c, "project that it belongs to (default: the configuration's)")
	c.Flags().StringVar(&scope, "scope", "", "read, send or admin")
	c.Flags().StringVar(&name, "name", "", "whose it is (default: made of its first characters)")
	return c
}

// madeKey is a key with its secret.
type madeKey struct {
	Secret string `json:"key"`
	auth.Key
}

func keysListCommand(o *options) *cobra.Command {
	f := &keyFlags{options: o}
	var all bool
	c := &cobra.Command{
		Use: "list", Short: "List keys, and when they were last used", Args: args(cobra.NoArgs),
		Long:    "list shows the keys that are not revoked, the oldest first: not the keys themselves, which nobody has but who they were made for.",
		Example: "  pointsman keys list\n  pointsman keys list --project shop --all --json",
		RunE: func(c *cobra.Command, _ []string) error {
			return f.with(c, func(_ *config.Config, keys *auth.Keys) error {
				list, err := listKeys(c.Context(), keys, f.project, all)
				if err != nil {
					return err
				}
				if f.json {
					return f.document(c.OutOrStdout(), map[string]any{"items": list})
				}
				return f.print(c.OutOrStdout(), keysTable(list))
			})
		},
	}
	f.add(c, "project (default: all)")
	c.Flags().BoolVar(&all, "all", false, "the revoked ones too")
	return c
}

const keysPage = 200

func listKeys(ctx context.Context, keys *auth.Keys, project string, revoked bool) ([]auth.Key, error) {
	list := []auth.Key{}
	for after := uuid.Nil; ; after = list[len(list)-1].ID {
		page, err := keys.List(ctx, project, revoked, after, keysPage)
		if err != nil {
			return nil, err
		}
		if list = append(list, page...); len(page) < keysPage {
			return list, nil
		}
	}
}

func keysTable(keys []auth.Key) *table {
	t := newTable("NAME", "PROJECT", "SCOPE", "KEY", "CREATED", "LAST USED", "REVOKED")
	for _, k := range keys {
		t.add(k.Name, k.Project, k.Scope, k.Hint+"…", clock(k.CreatedAt), clockOf(k.LastUsedAt), clockOf(k.RevokedAt))
	}
	return t
}

func keysRevokeCommand(o *options) *cobra.Command {
	f := &keyFlags{options: o}
	c := &cobra.Command{
		Use: "revoke NAME", Short: "End a key, within seconds", Args: args(cobra.ExactArgs(1)), ValidArgsFunction: cobra.NoFileCompletions,
		Long: `revoke ends a key, by its name or its id; bridges notice within seconds. Where keys of several projects have the name, --project says
which. With the last key, and without an admin token, an API that is bound to its own machine is open there again, and any other refuses
everything.`,
		Example: "  pointsman keys revoke checkout\n  pointsman keys revoke checkout --project shop",
		RunE: func(c *cobra.Command, args []string) error {
			return f.with(c, func(_ *config.Config, keys *auth.Keys) error {
				project, err := f.projectWith(c, keys, args[0])
				if err != nil {
					return err
				}
				key, found, err := keys.Revoke(c.Context(), project, args[0])
				if err != nil {
					return err
				}
				if !found {
					return fmt.Errorf("not_found: the project %s has no key %q: pointsman keys list shows them", project, args[0])
				}
				if f.json {
					return f.document(c.OutOrStdout(), key)
				}
				_, err = fmt.Fprintf(c.OutOrStdout(), "%s of the project %s is revoked\n", key.Name, key.Project)
				return err
			})
		},
	}
	f.add(c, "project that it belongs to (default: all)")
	return c
}

// projectWith is the one that was named, or else the only one that has this key.
func (f *keyFlags) projectWith(c *cobra.Command, keys *auth.Keys, idOrName string) (string, error) {
	if f.project != "" {
		return f.project, nil
	}
	list, err := listKeys(c.Context(), keys, "", true)
	if err != nil {
		return "", err
	}
	var projects []string
	for _, k := range list {
		if k.ID.String() == idOrName || k.Name == idOrName && k.RevokedAt == nil {
			projects = append(projects, k.Project)
		}
	}
	switch len(projects) {
	case 0:
		return "", fmt.Errorf("not_found: no project has a key %q: pointsman keys list shows them", idOrName)
	case 1:
		return projects[0], nil
	default:
		return "", usage(c, fmt.Errorf("the projects %s have a key %q each: want --project", strings.Join(projects, ", "), idOrName))
	}
}
