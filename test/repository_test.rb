# frozen_string_literal: true

require_relative "test_helper"
require "yaml"

# What the repository has besides the gem: .github, .editorconfig. Nothing here runs a workflow.
class RepositoryTest < PenstockTest
  ROOT = File.expand_path("..", __dir__)
  FILES = Dir.glob(File.join(ROOT, ".github/**/*.yml")).to_h { |path| [path.delete_prefix("#{ROOT}/"), path] }
  FORMS = FILES.keys.grep(%r{ISSUE_TEMPLATE/(?!config)})

  def content(file) = YAML.safe_load_file(FILES.fetch(file), aliases: false)

  def workflow = content(".github/workflows/ci.yml")

  # @return [Array<String>] the commands of all jobs
  def commands = workflow["jobs"].values.flat_map { |job| job["steps"].filter_map { |step| step["run"] } }

  FILES.each_key do |file|
    define_method(:"test_#{file.gsub(/\W+/, "_")}_is_valid_yaml_and_repeats_no_key") do
      assert_kind_of Hash, content(file)
      keys = lambda do |node|
        if node.is_a?(Psych::Nodes::Mapping)
          names = node.children.each_slice(2).map { |key, _| key.value }
          assert_equal names.uniq, names, file
        end
        node.children&.each(&keys)
      end
      keys.call(YAML.parse_file(FILES[file]).root)
    end
  end

  def test_jobs_may_only_read_the_repository_and_end_in_time
    assert_equal({ "contents" => "read" }, workflow["permissions"])
    workflow["jobs"].each do |name, job|
      assert_nil job["permissions"], name
      assert_kind_of Integer, job["timeout-minutes"], name
      checkout = job["steps"].find { |step| step["uses"]&.start_with?("actions/checkout@") }
      assert_equal false, checkout.dig("with", "persist-credentials"), name
    end
    assert workflow["concurrency"]
  end

  # An expression in a command would let a pull request's title or branch become a part of the command.
  def test_commands_contain_no_expressions
    commands.each { |command| refute_includes command, "${{" }
  end

  def test_what_the_workflow_runs_and_hashes_exists
    lines = commands.join("\n")
    hashed = File.read(FILES.fetch(".github/workflows/ci.yml")).scan(/hashFiles\((.*?)\)/).flatten.join.scan(/'(.*?)'/).flatten
    named = lines.scan(%r{(?<![\w/.])(?:bin|\.ci)/\w+|\w+\.gemspec})
    assert_includes named, ".ci/run"
    assert_includes named, "bin/setup"
    (named + hashed).each { |file| assert_path_exists File.join(ROOT, file) }
    run = lines.scan(%r{^\s*(?:\S+=\S+ )*((?:bin|\.ci)/\w+)}).flatten
    run.each { |file| assert File.executable?(File.join(ROOT, file)), file }
  end

  def test_options_of_bin_setup_that_the_workflow_gives_exist
    help = IO.popen([File.join(ROOT, "bin/setup"), "--help"], &:read)
    options = commands.join("\n").scan(%r{bin/setup(.*)$}).flatten.join(" ").split
    refute_empty options
    options.each { |option| assert_match(/^  #{Regexp.escape(option)} /, help) }
  end

  def test_the_rubies_of_the_workflow_are_those_that_the_readme_calls_tested
    rubies = workflow.dig("jobs", "test", "strategy", "matrix", "ruby")
    tested = File.read(File.join(ROOT, "README.md"))[/^\| Ruby \|.*tested on (.*?) \|$/, 1]
    assert_equal tested.scan(/\d+\.\d+/), rubies
  end

  FORMS.each do |file|
    define_method(:"test_#{File.basename(file, ".yml")}_is_a_form_that_can_be_filled_in") do
      form = content(file)
      %w[name description body].each { |key| refute_empty form.fetch(key) }
      fields = form["body"].reject { |field| field["type"] == "markdown" }
      ids = fields.map { |field| field.fetch("id") }
      assert_equal ids.uniq, ids
      fields.each do |field|
        assert_includes %w[textarea input dropdown checkboxes], field["type"]
        refute_empty field.dig("attributes", "label")
        refute_empty field.dig("attributes", "options") if %w[dropdown checkboxes].include?(field["type"])
      end
    end
  end

  def test_files_and_headings_that_forms_link_to_exist
    links = FORMS.flat_map { |file| File.read(FILES[file]).scan(%r{\]\(\.\./blob/HEAD/([\w./]+)(?:#([\w-]+))?\)}) }
    refute_empty links
    links.each do |file, heading|
      assert_path_exists File.join(ROOT, file)
      assert_match(/^## #{heading}$/i, File.read(File.join(ROOT, file))) if heading
    end
  end

  def test_files_and_folders_that_the_pull_requests_template_names_exist
    text = File.read(File.join(ROOT, ".github/PULL_REQUEST_TEMPLATE.md"))
    named = text.scan(%r{\b(?:[A-Z]+\.md|(?:[a-z]+/)+)(?=[\s`.,])}).uniq
    refute_empty named
    named.each { |name| assert_path_exists File.join(ROOT, name) }
  end

  def test_the_changelog_begins_with_unreleased_and_dates_this_version
    headings = File.readlines(File.join(ROOT, "CHANGELOG.md"), chomp: true).grep(/^## /)
    assert_equal "## Unreleased", headings.first
    assert_match(/\A## #{Regexp.escape(Penstock::VERSION)} - \d{4}-\d\d-\d\d\z/, headings[1])
  end

  def test_editorconfig_allows_the_lines_that_rubocop_allows
    widest = YAML.safe_load_file(File.join(ROOT, ".rubocop.yml")).dig("Layout/LineLength", "Max")
    assert_match(/^max_line_length = #{widest}$/, File.read(File.join(ROOT, ".editorconfig")))
  end
end
