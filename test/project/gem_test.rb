# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/document_links"
require_relative "../support/limited"
require "rubygems/package"
require "tmpdir"

# The gem as a user gets it: built, and its files unpacked into an empty directory.
class GemTest < PenstockTest
  ROOT = File.expand_path("../..", __dir__)

  class << self
    # @return [String] the directory, made once
    def unpacked
      @unpacked ||= Dir.mktmpdir("penstock-gem").tap do |directory|
        Minitest.after_run { FileUtils.rm_rf(directory) }
        file = File.join(directory, "built.gem")
        command = [{ "RUBYOPT" => nil, "BUNDLE_GEMFILE" => nil }, RbConfig.ruby, "-S", "gem", "build", "penstock.gemspec"]
        output, status = Limited.capture2e(*command, "--output", file, chdir: ROOT)
        raise output unless status.success?

        Gem::Package.new(file).extract_files(File.join(directory, "files"))
      end
      File.join(@unpacked, "files")
    end
  end

  def unpacked = self.class.unpacked

  def files = Dir.glob("**/*", base: unpacked).select { |file| File.file?(File.join(unpacked, file)) }

  def test_each_link_and_image_of_the_readme_and_the_guides_leads_to_a_file_of_the_gem
    links = DocumentLinks.new(unpacked)
    assert_includes links.targets(File.join(unpacked, "README.md")), "docs/images/penstock.svg"
    assert_includes links.pages, File.join(File.realpath(unpacked), "docs/waiting.md")
    assert_empty links.broken
  end

  def test_the_readme_names_no_source_file_that_the_gem_lacks
    named = File.read(File.join(unpacked, "README.md")).scan(%r{`((?:lib|ext|docs|examples)/\S+?)`}).flatten
    refute_empty named
    assert_empty(named.reject { |file| File.exist?(File.join(unpacked, file)) })
  end

  def test_each_document_that_the_code_names_is_in_the_gem
    sources = files.grep(%r{\A(?:lib|ext|exe|examples)/})
    named = sources.flat_map { |file| File.read(File.join(unpacked, file)).scan(%r{docs/[\w/-]+\.md|\b[A-Z]+\.md\b}) }.uniq
    refute_empty named
    assert_empty(named.reject { |file| File.exist?(File.join(unpacked, file)) })
  end

  # As RubyGems installs it: it puts an extension into a directory of its own, which comes first in the load path.
  slow def test_the_codec_of_the_gem_is_built_and_loaded_without_librdkafka
    Dir.mktmpdir("penstock-codec") do |directory|
      [[RbConfig.ruby, File.join(unpacked, "ext/penstock/message_pack/extconf.rb")], %w[make]].each do |command|
        output, status = Limited.capture2e(*command, chdir: directory)
        assert status.success?, output
      end
      built = Dir[File.join(directory, "*.#{RbConfig::CONFIG["DLEXT"]}")].first
      refute_includes `nm -D --undefined-only #{built}`, "rd_kafka"
      FileUtils.mkdir(installed = File.join(directory, "penstock"))
      FileUtils.mv(built, installed)
      includes = [directory, File.join(unpacked, "lib")].flat_map { |path| ["-I", path] }
      output, = Limited.capture2e(RbConfig.ruby, "-w", *includes, "-r", "penstock/message_pack",
                                  "-e", "p Penstock::MessagePack::DefaultFactory.load(Penstock::MessagePack.pack(7))")
      assert_equal "7\n", output
    end
  end

  def test_the_gem_has_all_that_its_extensions_are_built_of_and_nothing_that_was_built
    built, sources = files.partition { |file| file.match?(/\.(?:so|o|bundle|log)\z|\Atmp/) }
    assert_empty built
    tracked = Dir.glob("ext/**/*.{c,h,rb}", base: ROOT)
    assert_equal tracked.sort, sources.grep(%r{\Aext/}).sort
  end
end
