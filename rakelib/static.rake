# frozen_string_literal: true

namespace :test do
  desc "Static checks of the C sources: what gcc's analyzer says, and which functions may call Ruby"
  task(static: :compile) { ruby "test/static.rb" }
end
