# frozen_string_literal: true

require_relative "../test_helper"
require "tmpdir"

# What the extconf.rb of each extension rejects before anything is compiled.
class ExtconfTest < PenstockTest
  %w[penstock penstock/message_pack].each do |extension|
    define_method("test_extconf_of_#{extension.tr("/", "_")}_rejects_a_32_bit_ruby_with_a_reason") do
      pretend = <<~RUBY
        require "rbconfig/sizeof"
        sizes = RbConfig::SIZEOF.merge("void*" => 4)
        RbConfig.send(:remove_const, :SIZEOF)
        RbConfig::SIZEOF = sizes
        load #{File.expand_path("../../ext/#{extension}/extconf.rb", __dir__).dump}
      RUBY
      Dir.mktmpdir do |directory|
        output, status = Limited.capture2e(RbConfig.ruby, "-e", pretend, chdir: directory)
        refute_predicate status, :success?
        assert_includes output, "Penstock needs a 64-bit Ruby; this one is 32-bit (#{RbConfig::CONFIG["arch"]})."
        refute_path_exists File.join(directory, "Makefile")
      end
    end
  end
end
