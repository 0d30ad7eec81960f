package config

import "reflect"

// differences are the sections in which two configurations differ, without the routes.
func (c *Config) differences(other *Config) (names []string) {
	for _, s := range []struct {
		name string
		a, b any
	}{
		{"project", c.Project, other.Project},
		{"database", c.Database, other.Database},
		{"nats", c.NATS, other.NATS},
		{"http", c.HTTP, other.HTTP},
		{"outcomes", c.Outcomes, other.Outcomes},
		{"machines", c.Machines, other.Machines},
		{"flows", flowTexts(c.Flows), flowTexts(other.Flows)},
		{"worker", c.Worker, other.Worker},
		{"retention", c.Retention, other.Retention},
		{"quotas", c.Quotas, other.Quotas},
		{"webhooks", c.Webhooks, other.Webhooks},
		{"migrate_on_start", c.MigrateOnStart, other.MigrateOnStart},
	} {
		if !reflect.DeepEqual(s.a, s.b) {
			names = append(names, s.name)
		}
	}
	return names
}

// flowTexts are flows without their layout.
func flowTexts(flows []Flow) []string {
	texts := make([]string, len(flows))
	for i, f := range flows {
		texts[i] = f.Hash
	}
	return texts
}
