// Renders a Helm chart where helm itself is absent: Go's templates with Sprig, which is what Helm renders with, and Helm's own
// functions as far as this chart uses them. It is not Helm: hooks, dependencies, schemas and server-side checks are not here.
// Usage: render CHART VALUES.json  ->  the rendered objects as a JSON list.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	// In Debian's tree of sources, without modules.
	"github.com/Masterminds/sprig"
	"github.com/ghodss/yaml"
)

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "render:", err)
		os.Exit(1)
	}
}

func readYAML(path string) map[string]interface{} {
	text, err := os.ReadFile(path)
	must(err)
	values := map[string]interface{}{}
	must(yaml.UnmarshalStrict(text, &values))
	return values
}

// Maps are merged, everything else replaced, as Helm does with --values.
func merge(below, above map[string]interface{}) map[string]interface{} {
	for key, value := range above {
		inner, isMap := value.(map[string]interface{})
		if old, wasMap := below[key].(map[string]interface{}); isMap && wasMap {
			below[key] = merge(old, inner)
		} else {
			below[key] = value
		}
	}
	return below
}

func parse(chart string) *template.Template {
	root := template.New("chart").Option("missingkey=error").Funcs(sprig.TxtFuncMap())
	root.Funcs(template.FuncMap{
		"toYaml": func(value interface{}) (string, error) {
			text, err := yaml.Marshal(value)
			return strings.TrimSuffix(string(text), "\n"), err
		},
		"required": func(message string, value interface{}) (interface{}, error) {
			if value == nil || value == "" {
				return nil, fmt.Errorf("%s", message)
			}
			return value, nil
		},
		"include": func(name string, data interface{}) (string, error) {
			var text bytes.Buffer
			err := root.ExecuteTemplate(&text, name, data)
			return text.String(), err
		},
	})
	files, err := filepath.Glob(filepath.Join(chart, "templates", "*"))
	must(err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		must(err)
		_, err = root.New(filepath.Base(file)).Parse(string(text))
		must(err)
	}
	return root
}

func main() {
	chart := os.Args[1]
	about := readYAML(filepath.Join(chart, "Chart.yaml"))
	data := map[string]interface{}{
		"Values":  merge(readYAML(filepath.Join(chart, "values.yaml")), readYAML(os.Args[2])),
		"Release": map[string]interface{}{"Name": "test", "Namespace": "models", "Service": "Helm"},
		"Chart": map[string]interface{}{"Name": about["name"], "Version": about["version"], "AppVersion": about["appVersion"]},
	}
	objects := []interface{}{}
	templates := parse(chart)
	for _, file := range templates.Templates() {
		if !strings.HasSuffix(file.Name(), ".yaml") && file.Name() != "NOTES.txt" {
			continue
		}
		var text bytes.Buffer
		must(templates.ExecuteTemplate(&text, file.Name(), data))
		if file.Name() == "NOTES.txt" {
			continue
		}
		for _, document := range strings.Split("\n"+text.String(), "\n---\n") {
			object := map[string]interface{}{}
			if err := yaml.UnmarshalStrict([]byte(document), &object); err != nil {
				must(fmt.Errorf("%s: %w\n%s", file.Name(), err, document))
			}
			if len(object) > 0 {
				objects = append(objects, object)
			}
		}
	}
	must(json.NewEncoder(os.Stdout).Encode(objects))
}
