package cli

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pointsman/pointsman/internal/api"
	"github.com/pointsman/pointsman/internal/natsapi"
)

func childrenCommand(o *options) *cobra.Command {
	n := o.connection()
	var p paging
	var tree bool
	c := &cobra.Command{
		Use: "children REF", Short: "List the children of an instance, or all that is below it",
		Long: `children shows the instances that the steps of an instance have started as its children, the ended ones too, in the order of their starts.
With --tree theirs follow each, to any depth. REF is an instance id, or key:<correlation key>.`,
		Example: `  pointsman children key:import-7
  pointsman children key:import-7 --tree --limit 500
  pointsman children key:import-7 --json | jq '.items[] | select(.status == "failed") | .id'`,
		Args: args(cobra.ExactArgs(1)), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, args []string) error {
			if err := p.check(c); err != nil {
				return err
			}
			if tree && p.cursor != "" {
				return usage(c, fmt.Errorf("--tree has no --cursor: name an instance further down"))
			}
			return n.run(c, func(ctx context.Context, s *session) error {
				if tree {
					return s.tree(ctx, args[0], p.limit)
				}
				page, err := s.children(ctx, args[0], p)
				if err != nil {
					return err
				}
				return show(s, page, instancesTable)
			})
		},
	}
	c.Flags().BoolVar(&tree, "tree", false, "theirs too, to any depth")
	p.add(c)
	return n.add(c)
}

func (s *session) children(ctx context.Context, ref string, p paging) (api.Page[api.Instance], error) {
	return collect(p, func(limit int, cursor string) (page api.Page[api.Instance], err error) {
		err = s.ask(ctx, natsapi.VerbChildren, api.PageRequest{Ref: ref, Limit: limit, Cursor: cursor}, &page)
		return page, err
	})
}

// treeNode is an instance with what is below it.
type treeNode struct {
	api.Instance
	Children []*treeNode `json:"children"`
	depth    int
}

// tree shows an instance and what is below it, depth first, at most limit of them.
func (s *session) tree(ctx context.Context, ref string, limit int) error {
	in, err := s.get(ctx, ref, 0)
	if err != nil {
		return err
	}
	root := &treeNode{Instance: in, Children: []*treeNode{}}
	shown, more, stack := []*treeNode{}, false, []*treeNode{root}
	for len(stack) > 0 && len(shown) < limit {
		node := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		shown = append(shown, node)
		page, err := s.children(ctx, node.ID, paging{limit: limit})
		if err != nil {
			return err
		}
		more = more || page.NextCursor != nil
		for i := range page.Items {
			node.Children = append(node.Children, &treeNode{Instance: page.Items[i], Children: []*treeNode{}, depth: node.depth + 1})
		}
		for i := len(node.Children) - 1; i >= 0; i-- {
			stack = append(stack, node.Children[i])
		}
	}
	if s.json {
		return s.document(s.out, root)
	}
	t := newTable("ID", "KEY", "MACHINE", "STATUS", "STEP", "INBOX", "UPDATED")
	for _, node := range shown {
		in := node.Instance
		t.add(strings.Repeat("  ", node.depth)+in.ID, short(text(in.CorrelationKey), 40), fmt.Sprintf("%s@%d", in.Machine, in.Version), statusOf(in), in.Step, fmt.Sprint(in.InboxCount), clock(in.UpdatedAt))
	}
	if err := s.print(s.out, t); err != nil {
		return err
	}
	if more || len(stack) > 0 {
		_, err := io.WriteString(s.errOut, "There are more: see --limit.\n")
		return err
	}
	return nil
}
