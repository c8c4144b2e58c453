# frozen_string_literal: true

require_relative "test_helper"

class ReadmeTest < PenstockTest
  ROOT = File.expand_path("..", __dir__)
  README = File.read(File.join(ROOT, "README.md"))

  README.scan(/^```ruby\n(.*?)^```/m).flatten.each_with_index do |snippet, i|
    define_method(:"test_ruby_snippet_#{i + 1}_runs_as_it_stands") do
      assert_match(/stored at offset 0 .*1000 more, and persisted/m, ruby!(snippet))
    end
  end

  README.scan(%r{bin/\w+}).uniq.each do |command|
    define_method(:"test_#{command.tr("/", "_")}_is_there_and_explains_itself") do
      output, status = Limited.capture2e(File.join(ROOT, command), "--help")
      assert_predicate status, :success?, output
      assert_match(/\Ausage: #{command}/i, output)
    end
  end

  def test_bin_demo_delivers_everything_and_ends_with_its_figures_as_json
    output, errors, status = Limited.capture3(File.join(ROOT, "bin/demo"), "--rounds", "2", "--json")
    assert_predicate status, :success?, errors
    figures = JSON.parse(output.lines.last)
    assert_equal [25, 50_000, 50_000, 0], figures.values_at("producers", "messages", "delivered", "failed")
    assert_equal [0, 1, 0], figures.values_at("ruby_threads_added", "native_pollers", "missed_wakeups")
  end

  # With the embedded cluster in the place of the one that the commands name.
  def test_the_penstock_commands_run_and_find_nothing_wrong
    commands = README.scan(/^penstock (.+)$/).flatten.map { |line| line.sub(/ +#.*/, "").split }
    assert_operator commands.size, :>=, 3
    commands.each do |arguments|
      arguments.map! { |one| one == "kafka.example:9092" ? embedded_cluster.bootstrap_servers.split(",").first : one }
      command = [{ "BUNDLE_GEMFILE" => nil }, RbConfig.ruby, "-w", "-I", File.join(ROOT, "lib"), File.join(ROOT, "exe/penstock")]
      output, status = Limited.capture2e(*command, *arguments, chdir: File.join(ROOT, "docs")) # where there is no bundle
      assert_predicate status, :success?, output
    end
  end

  def test_files_that_the_readme_names_exist
    README.scan(/\]\((\w+\.md)\)|`(lib\S+?)`/).flatten.compact.each { |file| assert_path_exists File.join(ROOT, file) }
  end
end
